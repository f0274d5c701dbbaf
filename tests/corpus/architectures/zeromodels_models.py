"""Image models of zeromodels: transformers, a depth estimator and a detector, in small sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from zeromodels.models import (
    cait,
    depth_anything_v1,
    dino_v3,
    levit,
    maxvit,
    mobilevit,
    pvt_v2,
    rf_detr,
    swin,
)

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_TRANSFORMER = {"patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}


def _images(size: int) -> np.ndarray:
    return np.random.default_rng(0).random((2, size, size, 3), dtype=np.float32)


def _architecture(
    factory: Callable[..., keras.Model], image_size: int = 32, **settings: Any
) -> Architecture:
    return Architecture(
        name=f"zeromodels/{factory.__name__}",
        build=partial(factory, image_size=image_size, **settings),
        batch=partial(_images, image_size),
    )


_TRANSFORMERS = (
    _architecture(cait.CaiTModel, **_TRANSFORMER, drop_path_rate=0.1),
    _architecture(dino_v3.DinoV3ViTModel, **_TRANSFORMER),
    _architecture(
        levit.LevitModel,
        64,
        hidden_sizes=(16, 16, 16),
        num_attention_heads=(2, 2, 2),
        depths=(1, 1, 1),
        key_dim=(8, 8, 8),
    ),
    _architecture(
        maxvit.MaxViTModel,
        stem_width=8,
        depths=(1, 1),
        embed_dim=(16, 16),
        num_heads=(2, 2),
        window_size=2,
    ),
    _architecture(
        mobilevit.MobileViTModel,
        64,
        initial_dims=8,
        head_dims=16,
        block_dims=(8, 8, 16, 16, 16),
        attention_dims=(None, None, 16, 16, 16),
    ),
    _architecture(
        pvt_v2.PvtV2Model,
        64,
        hidden_sizes=(8, 8, 16, 16),
        depths=(1, 1, 1, 1),
        num_attention_heads=(1, 1, 2, 2),
        linear_attention=True,
        drop_path_rate=0.1,
    ),
    _architecture(
        swin.SwinModel,
        pretrain_size=32,
        window_size=2,
        embed_dim=8,
        depths=(2, 2),
        num_heads=(2, 2),
    ),
)

_DEPTH_AND_DETECTION = (
    _architecture(
        depth_anything_v1.DepthAnythingV1Model,
        28,
        backbone_dim=16,
        backbone_depth=4,
        backbone_num_heads=2,
        out_indices=[1, 2, 3, 4],
        neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8,
    ),
    _architecture(
        rf_detr.RFDetrModel,
        64,
        resolution=64,
        hidden_dim=16,
        backbone_hidden_size=16,
        backbone_num_heads=2,
        backbone_num_layers=2,
        out_feature_indexes=[1, 2],
        patch_size=8,
        num_windows=2,
        positional_encoding_size=8,
        dec_layers=1,
        sa_nheads=2,
        ca_nheads=2,
        num_queries=4,
        num_classes=4,
        dim_feedforward=32,
        group_detr=1,
    ),
)

ARCHITECTURES: tuple[Architecture, ...] = (
    *_TRANSFORMERS,
    *_DEPTH_AND_DETECTION,
)
