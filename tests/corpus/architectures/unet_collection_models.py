"""Segmentation networks of keras-unet-collection, without pretrained backbones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from keras_unet_collection import models
from keras_unet_collection.transformer_layers import (
    patch_embedding,
    patch_expanding,
    patch_extract,
    patch_merging,
)

from tests.corpus.architecture import Architecture

IMAGE_SHAPE = (32, 32, 3)
LABELS = 2


def _images() -> np.ndarray:
    return np.random.default_rng(0).random((2, *IMAGE_SHAPE), dtype=np.float32)


def _network(factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(factory, IMAGE_SHAPE, n_labels=LABELS, **settings)
    return Architecture(f"keras_unet_collection/{factory.__name__}", build, _images)


def _patch_autoencoder() -> keras.Model:
    inputs = keras.Input(IMAGE_SHAPE)
    hidden = patch_extract((4, 4))(inputs)
    hidden = patch_embedding(num_patch=64, embed_dim=8)(hidden)
    hidden = patch_merging((8, 8), embed_dim=8, name="down")(hidden)
    hidden = patch_expanding((4, 4), embed_dim=16, upsample_rate=2, name="up")(hidden)
    return keras.Model(inputs, keras.layers.Dense(LABELS)(hidden))


ARCHITECTURES: tuple[Architecture, ...] = (
    _network(models.unet_2d, filter_num=[4, 8, 8], batch_norm=True, pool="max", unpool=False),
    _network(models.vnet_2d, filter_num=[4, 8, 8], batch_norm=True, pool=False, unpool=False),
    _network(models.unet_plus_2d, filter_num=[4, 8, 8], activation="LeakyReLU"),
    _network(models.r2_unet_2d, filter_num=[4, 8, 8], batch_norm=True, pool="ave"),
    _network(models.att_unet_2d, filter_num=[4, 8, 8], attention="add", unpool="bilinear"),
    _network(models.u2net_2d, filter_num_down=[4, 8], deep_supervision=True),
    _network(models.unet_3plus_2d, filter_num_down=[4, 8, 8], deep_supervision=True),
    Architecture("keras_unet_collection/patch_embedding", _patch_autoencoder, _images),
)
