"""Classifiers and segmentation networks of medicai, for images and for volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np
from medicai import models

from tests.corpus.architecture import Architecture

IMAGE = (64, 64, 3)
SMALL_IMAGE = (32, 32, 3)
VOLUME = (32, 32, 32, 1)


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


def _swin_encoder(
    shape: Sequence[int], backbone: Callable[..., keras.Model], **settings: Any
) -> keras.Model:
    return backbone(
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
    encoder = _swin_encoder(shape, models.SwinBackbone, downsampling_strategy="swin_unetr_like")
    return models.SwinUNETR(encoder=encoder, num_classes=2, feature_size=8)


def _segformer(shape: Sequence[int]) -> keras.Model:
    encoder = models.MiTBackbone(
        input_shape=tuple(shape), project_dim=[8, 8, 16, 16], num_heads=[1, 2, 2, 4], depths=[1] * 4
    )
    return models.SegFormer(encoder=encoder, num_classes=2, decoder_head_embedding_dim=8)


SMALL_DECODER = (16, 8, 8, 4, 4)
VIT = {
    "patch_size": 16,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "mlp_dim": 16,
    "use_class_token": True,
}

ARCHITECTURES: tuple[Architecture, ...] = (
    _network(
        "ConvNeXtBackbone-2d",
        models.ConvNeXtBackbone,
        IMAGE,
        depths=[1, 1, 1, 1],
        projection_dims=[4, 8, 8, 16],
        drop_path_rate=0.1,
        name="convnext",
    ),
    _network(
        "ConvNeXtBackboneV2-3d",
        models.ConvNeXtBackboneV2,
        VOLUME,
        depths=[1, 1, 1, 1],
        projection_dims=[4, 8, 8, 16],
        drop_path_rate=0.1,
        name="convnext",
    ),
    _network(
        "DenseNetBackbone-2d",
        models.DenseNetBackbone,
        IMAGE,
        blocks=[1] * 4,
        growth_rate=4,
        name="densenet",
    ),
    _network(
        "DenseNetBackbone-3d",
        models.DenseNetBackbone,
        VOLUME,
        blocks=[1] * 4,
        growth_rate=4,
        name="densenet",
    ),
    _network("EfficientNetB0-2d", models.EfficientNetB0, IMAGE, num_classes=3),
    _network(
        "MiTBackbone-2d",
        models.MiTBackbone,
        IMAGE,
        project_dim=[8, 8, 16, 16],
        num_heads=[1, 2, 2, 4],
        depths=[1] * 4,
    ),
    Architecture(
        "medicai/ResNetBackbone-2d", partial(_resnet_encoder, IMAGE), partial(_batch, IMAGE)
    ),
    Architecture(
        "medicai/ResNetBackbone-3d", partial(_resnet_encoder, VOLUME), partial(_batch, VOLUME)
    ),
    Architecture(
        "medicai/SwinBackbone-3d",
        partial(_swin_encoder, VOLUME, models.SwinBackbone),
        partial(_batch, VOLUME),
    ),
    Architecture(
        "medicai/SwinBackboneV2-2d",
        partial(_swin_encoder, SMALL_IMAGE, models.SwinBackboneV2),
        partial(_batch, SMALL_IMAGE),
    ),
    Architecture(
        "medicai/SwinBackboneV2-3d",
        partial(_swin_encoder, VOLUME, models.SwinBackboneV2),
        partial(_batch, VOLUME),
    ),
    _network("ViTBackbone-2d", models.ViTBackbone, IMAGE, **VIT),
    _network("ViTBackbone-3d", models.ViTBackbone, VOLUME, **VIT),
    _network("SEResNet18-2d", models.SEResNet18, IMAGE, num_classes=3),
    _network("Xception-2d", models.Xception, IMAGE, num_classes=3),
    _with_densenet(models.DeepLabV3Plus, IMAGE, decoder_channels=8, projection_filters=4),
    _with_densenet(models.UNet, IMAGE, decoder_filters=SMALL_DECODER),
    _with_densenet(
        models.UNet, VOLUME, decoder_filters=SMALL_DECODER, decoder_block_type="transpose"
    ),
    _with_densenet(models.UNetPlusPlus, VOLUME, decoder_filters=SMALL_DECODER),
    _with_densenet(models.UPerNet, IMAGE, decoder_filters=8),
    _with_densenet(models.UPerNet, VOLUME, decoder_filters=8),
    Architecture("medicai/SwinUNETR-3d", partial(_swin_unetr, VOLUME), partial(_batch, VOLUME)),
    Architecture("medicai/SegFormer-2d", partial(_segformer, IMAGE), partial(_batch, IMAGE)),
    Architecture("medicai/SegFormer-3d", partial(_segformer, VOLUME), partial(_batch, VOLUME)),
)
