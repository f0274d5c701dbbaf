"""Segmentation networks of medicai, with their encoders, and of keras-unet-collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from keras_unet_collection import models as unets
from medicai import models

from tests.corpus.architecture import Architecture

IMAGE = (64, 64, 3)
SMALL_IMAGE = (32, 32, 3)
VOLUME = (32, 32, 32, 1)
SMALL_DECODER = (16, 8, 8, 4, 4)


def _batch(shape: Sequence[int]) -> np.ndarray:
    return np.random.default_rng(0).random((2, *shape), dtype=np.float32)


def _network(
    title: str, factory: Callable[..., keras.Model], shape: Sequence[int], **settings: Any
) -> Architecture:
    build = partial(factory, input_shape=tuple(shape), **settings)
    return Architecture(f"medicai/{title}", build, partial(_batch, shape))


def _resnet_encoder(shape: Sequence[int]) -> keras.Model:
    return models.ResNetBackbone(
        input_shape=tuple(shape),
        num_blocks=[1, 1, 1, 1],
        block_type="basic_block",
        conv_filters=[64],
        num_filters=[64, 8, 8, 8],
    )


def _densenet_encoder(shape: Sequence[int]) -> keras.Model:
    return models.DenseNetBackbone(
        input_shape=tuple(shape), blocks=[1] * 4, growth_rate=4, name="encoder"
    )


def _swin_encoder(shape: Sequence[int], **settings: Any) -> keras.Model:
    return models.SwinBackbone(
        input_shape=tuple(shape),
        embed_dim=8,
        patch_size=2,
        window_size=4,
        depths=[2, 2, 1, 1],
        num_heads=[1, 2, 2, 2],
        **settings,
    )


def _with_densenet(
    factory: Callable[..., keras.Model], shape: Sequence[int], **settings: Any
) -> Architecture:
    def build() -> keras.Model:
        return factory(encoder=_densenet_encoder(shape), num_classes=2, **settings)

    dimensions = len(shape) - 1
    return Architecture(f"medicai/{factory.__name__}-{dimensions}d", build, partial(_batch, shape))


def _swin_unetr(shape: Sequence[int]) -> keras.Model:
    encoder = _swin_encoder(shape, downsampling_strategy="swin_unetr_like")
    return models.SwinUNETR(encoder=encoder, num_classes=2, feature_size=8)


def _segformer(shape: Sequence[int]) -> keras.Model:
    encoder = models.MiTBackbone(
        input_shape=tuple(shape), project_dim=[8, 8, 16, 16], num_heads=[1, 2, 2, 4], depths=[1] * 4
    )
    return models.SegFormer(encoder=encoder, num_classes=2, decoder_head_embedding_dim=8)


def _unet(factory: Callable[..., keras.Model], **settings: Any) -> Architecture:
    build = partial(factory, SMALL_IMAGE, n_labels=2, **settings)
    return Architecture(
        f"keras_unet_collection/{factory.__name__}", build, partial(_batch, SMALL_IMAGE)
    )


ARCHITECTURES: tuple[Architecture, ...] = (
    _network(
        "DenseNetBackbone-3d",
        models.DenseNetBackbone,
        VOLUME,
        blocks=[1] * 4,
        growth_rate=4,
        name="densenet",
    ),
    Architecture(
        "medicai/ResNetBackbone-2d", partial(_resnet_encoder, IMAGE), partial(_batch, IMAGE)
    ),
    Architecture(
        "medicai/SwinBackbone-3d",
        partial(_swin_encoder, VOLUME),
        partial(_batch, VOLUME),
    ),
    _with_densenet(models.UNet, IMAGE, decoder_filters=SMALL_DECODER),
    _with_densenet(
        models.UNet, VOLUME, decoder_filters=SMALL_DECODER, decoder_block_type="transpose"
    ),
    Architecture("medicai/SwinUNETR-3d", partial(_swin_unetr, VOLUME), partial(_batch, VOLUME)),
    Architecture("medicai/SegFormer-2d", partial(_segformer, IMAGE), partial(_batch, IMAGE)),
    _unet(unets.unet_2d, filter_num=[4, 8, 8], batch_norm=True, pool="max", unpool=False),
    _unet(unets.vnet_2d, filter_num=[4, 8, 8], batch_norm=True, pool=False, unpool=False),
    _unet(unets.att_unet_2d, filter_num=[4, 8, 8], attention="add", unpool="bilinear"),
    _unet(unets.unet_3plus_2d, filter_num_down=[4, 8, 8], deep_supervision=True),
)
