"""The smallest member of each family of Keras Image Models."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from kimm import models

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_NUM_CLASSES = 4


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
    _architecture(models.ConvMixer1024D20),
    _architecture(models.ConvNeXtAtto),
    _architecture(models.DenseNet121),
    _architecture(models.EfficientNetLiteB0),
    _architecture(models.EfficientNetV2B0),
    _architecture(models.GhostNetV2W100),
    _architecture(models.GhostNetV3W050),
    _architecture(models.GhostNetW050),
    _architecture(models.HGNetTiny),
    _architecture(models.HGNetV2B0),
    _architecture(models.InceptionNeXtTiny),
    _architecture(models.InceptionV3, 75),
    _architecture(models.LCNet035),
    _architecture(models.MobileNetV2W050),
    _architecture(models.MobileNetV3W050Small),
    _architecture(models.MobileOneS0),
    _architecture(models.MobileViTV2W050, 64),
    _architecture(models.MobileViTXXS, 64),
    _architecture(models.RegNetX002),
    _architecture(models.RegNetY002),
    _architecture(models.RepVGGA0),
    _architecture(models.ResNet18),
    _architecture(models.TinyNetE),
    _architecture(models.VGG11),
    _architecture(models.VisionTransformerTiny16),
    _architecture(models.Xception, 71),
)
