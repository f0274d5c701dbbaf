"""Models of K3IM for one-dimensional series, images and video."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from k3im.cait_1d import CAiT_1DModel
from k3im.cct import CCT
from k3im.cct_3d import CCT3DModel
from k3im.eanet import EANet
from k3im.fnet import FNetModel
from k3im.focalnet import FocalNetModel
from k3im.simple_vit import SimpleViT
from k3im.simple_vit_with_fft import SimpleViTFFT
from k3im.swint import SwinTModel
from k3im.video_mixer import VideoMixerModel
from k3im.vit import ViT
from k3im.vit_1d import ViT1DModel
from k3im.vivit import ViViT

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_SERIES = (32, 3)
_IMAGE = (32, 32, 3)
_VIDEO = (4, 16, 16, 3)
# Two convolutions and two poolings shorten it.
_LONG_VIDEO = (8, 16, 16, 3)

_TRANSFORMER = {"num_classes": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32, "dim_head": 8}
_SERIES_PATCHES = {"seq_len": 32, "patch_size": 4}
_IMAGE_PATCHES = {"image_size": (32, 32), "patch_size": (8, 8)}
_VIDEO_PATCHES = {
    "image_size": (16, 16),
    "image_patch_size": (8, 8),
    "frames": 4,
    "frame_patch_size": 2,
}
_COMPACT = {
    "num_heads": 2,
    "projection_dim": 16,
    "kernel_size": 3,
    "stride": 1,
    "padding": 1,
    "transformer_units": [16, 16],
    "stochastic_depth_rate": 0.1,
    "transformer_layers": 2,
    "num_classes": 4,
    "positional_emb": True,
}
_SPACE_AND_TIME = {
    "num_classes": 4,
    "dim": 16,
    "spatial_depth": 1,
    "temporal_depth": 1,
    "mlp_dim": 32,
    "emb_dropout": 0.1,
}


def _uniform(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).random((2, *shape), dtype=np.float32)


def _architecture(
    factory: Callable[..., keras.Model], sample: tuple[int, ...], **settings: Any
) -> Architecture:
    return Architecture(
        name=f"k3im/{factory.__name__}",
        build=partial(factory, **settings),
        batch=partial(_uniform, sample),
    )


_SERIES_MODELS = (
    _architecture(
        CAiT_1DModel, _SERIES, **_SERIES_PATCHES, **_TRANSFORMER, cls_depth=1, dropout_rate=0.1
    ),
    _architecture(ViT1DModel, _SERIES, **_SERIES_PATCHES, **_TRANSFORMER),
)

_IMAGE_MODELS = (
    _architecture(CCT, _IMAGE, input_shape=_IMAGE, **_COMPACT),
    _architecture(
        EANet,
        _IMAGE,
        input_shape=_IMAGE,
        patch_size=8,
        embedding_dim=16,
        num_transformer_blocks=2,
        mlp_dim=16,
        num_heads=2,
        dim_coefficient=2,
        attention_dropout=0.1,
        projection_dropout=0.1,
        num_classes=4,
    ),
    _architecture(
        FNetModel,
        _IMAGE,
        image_size=32,
        patch_size=8,
        embedding_dim=16,
        num_blocks=2,
        dropout_rate=0.1,
        num_classes=4,
        positional_encoding=True,
    ),
    _architecture(
        FocalNetModel,
        _IMAGE,
        img_size=32,
        num_classes=4,
        embed_dim=8,
        depths=[1, 1],
        focal_levels=[2, 2],
        focal_windows=[3, 3],
        use_layerscale=True,
        normalize_modulator=True,
        use_postln_in_modulation=True,
    ),
    _architecture(SimpleViT, _IMAGE, **_IMAGE_PATCHES, **_TRANSFORMER),
    _architecture(SimpleViTFFT, _IMAGE, **_IMAGE_PATCHES, **_TRANSFORMER, freq_patch_size=(8, 8)),
    _architecture(
        SwinTModel,
        _IMAGE,
        img_size=(32, 32),
        patch_size=(4, 4),
        embed_dim=16,
        num_heads=2,
        window_size=2,
        num_mlp=32,
        qkv_bias=True,
        dropout_rate=0.1,
        shift_size=1,
        num_classes=4,
    ),
    _architecture(ViT, _IMAGE, **_IMAGE_PATCHES, **_TRANSFORMER),
)

_VIDEO_MODELS = (
    _architecture(CCT3DModel, _LONG_VIDEO, input_shape=_LONG_VIDEO, **_COMPACT),
    # Its feed-forward network ends at the hidden width, so that has to be the model's own.
    _architecture(VideoMixerModel, _VIDEO, **_VIDEO_PATCHES, **{**_SPACE_AND_TIME, "mlp_dim": 16}),
    _architecture(ViViT, _VIDEO, **_VIDEO_PATCHES, **_SPACE_AND_TIME, heads=2, dim_head=8),
)

ARCHITECTURES: tuple[Architecture, ...] = (*_SERIES_MODELS, *_IMAGE_MODELS, *_VIDEO_MODELS)
