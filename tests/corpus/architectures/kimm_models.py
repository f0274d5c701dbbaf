"""Models of Keras Image Models: tiny configurations, and presets that are small already."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from kimm import models

# The classes that take depths and widths are not part of kimm's public names.
from kimm._src.models.convmixer import ConvMixer
from kimm._src.models.convnext import ConvNeXt
from kimm._src.models.densenet import DenseNet
from kimm._src.models.inception_next import InceptionNeXt
from kimm._src.models.mobileone import MobileOne
from kimm._src.models.regnet import RegNet
from kimm._src.models.repvgg import RepVGG
from kimm._src.models.resnet import ResNet
from kimm._src.models.vision_transformer import VisionTransformer

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_NUM_CLASSES = 4
_STAGES = {"depths": [1, 1, 1, 1], "hidden_channels": [16, 16, 32, 32]}
_REPARAMETERIZABLE = {
    "num_blocks": [1, 1, 1, 1],
    "num_channels": [16, 16, 16, 16],
    "stem_channels": 16,
}


def _images(size: int) -> np.ndarray:
    return np.random.default_rng(0).random((2, size, size, 3), dtype=np.float32)


def _architecture(
    factory: Callable[..., keras.Model], size: int = 32, **settings: Any
) -> Architecture:
    return Architecture(
        name=f"kimm/{factory.__name__}",
        build=partial(
            factory, weights=None, input_shape=(size, size, 3), classes=_NUM_CLASSES, **settings
        ),
        batch=partial(_images, size),
    )


ARCHITECTURES: tuple[Architecture, ...] = (
    _architecture(ConvMixer, depth=2, hidden_channels=16, patch_size=4, kernel_size=3),
    _architecture(ConvNeXt, **_STAGES),
    _architecture(DenseNet, growth_rate=8, num_blocks=[2, 2, 2, 2]),
    _architecture(models.GhostNetW050),
    _architecture(models.HGNetV2B0),
    _architecture(InceptionNeXt, **_STAGES),
    _architecture(models.LCNet035),
    _architecture(models.MobileNetV2W050),
    _architecture(models.MobileNetV3W050Small),
    _architecture(MobileOne, **_REPARAMETERIZABLE, branch_size=2),
    _architecture(models.MobileViTXXS, 64),
    _architecture(
        RegNet, w0=8, wa=8.0, wm=2.0, group_size=8, depth=4, se_ratio=0.25, dropout_rate=0.1
    ),
    _architecture(RepVGG, **_REPARAMETERIZABLE),
    _architecture(ResNet, block_fn="bottleneck", num_blocks=[1, 1, 1, 1]),
    _architecture(models.TinyNetE),
    _architecture(
        VisionTransformer,
        patch_size=8,
        embed_dim=16,
        depth=2,
        num_heads=2,
        pos_dropout_rate=0.1,
    ),
)
