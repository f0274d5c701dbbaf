"""Segmentation networks of keras-unet-collection, without pretrained backbones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from keras_unet_collection import models

from tests.corpus.architecture import Architecture

IMAGE_SHAPE = (32, 32, 3)
LABELS = 2


def _images() -> np.ndarray:
    return np.random.default_rng(0).random((2, *IMAGE_SHAPE), dtype=np.float32)


def _network(factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(factory, IMAGE_SHAPE, n_labels=LABELS, **settings)
    return Architecture(f"keras_unet_collection/{factory.__name__}", build, _images)


ARCHITECTURES: tuple[Architecture, ...] = (
    _network(models.unet_2d, filter_num=[4, 8, 8], batch_norm=True, pool="max", unpool=False),
    _network(models.vnet_2d, filter_num=[4, 8, 8], batch_norm=True, pool=False, unpool=False),
    _network(models.unet_plus_2d, filter_num=[4, 8, 8], activation="LeakyReLU"),
    _network(models.r2_unet_2d, filter_num=[4, 8, 8], batch_norm=True, pool="ave"),
    _network(models.att_unet_2d, filter_num=[4, 8, 8], attention="add", unpool="bilinear"),
    _network(
        models.resunet_a_2d,
        filter_num=[4, 8, 8],
        dilation_num=[1, 3],
        aspp_num_down=8,
        aspp_num_up=4,
    ),
    _network(models.u2net_2d, filter_num_down=[4, 8], deep_supervision=True),
    _network(models.unet_3plus_2d, filter_num_down=[4, 8, 8], deep_supervision=True),
    _network(
        models.transunet_2d,
        filter_num=[4, 8, 8],
        embed_dim=8,
        num_mlp=16,
        num_heads=2,
        num_transformer=2,
    ),
    _network(
        models.swin_unet_2d,
        filter_num_begin=8,
        depth=2,
        stack_num_down=2,
        stack_num_up=2,
        patch_size=(2, 2),
        num_heads=[2, 2],
        window_size=[4, 4],
        num_mlp=16,
    ),
)
