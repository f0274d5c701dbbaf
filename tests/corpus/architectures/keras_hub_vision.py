"""Vision backbones of keras-hub: convolutional networks and transformers."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import keras_hub
import numpy as np

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES", "dinov2", "hgnetv2", "images", "resnet", "vit"]

models = keras_hub.models


def images(size: int = 32, *leading: int) -> np.ndarray:
    """Make two images, or two stacks of `leading` images."""
    rng = np.random.default_rng(0)
    return rng.random((2, *leading, size, size, 3)).astype("float32")


def resnet(image_size: int = 32) -> keras.Model:
    """Make the residual network on which detectors and segmenters stand."""
    return models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 8, 8, 8],
        stackwise_num_blocks=[1, 1, 1, 1],
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="basic_block",
        image_shape=(image_size, image_size, 3),
    )


def vit(cls: Any, **kwargs: Any) -> keras.Model:
    """Make a plain vision transformer of the given class."""
    config = {"patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 8}
    return cls(image_shape=(32, 32, 3), **config, **kwargs)


def dinov2() -> keras.Model:
    """Make the transformer on which DepthAnything stands."""
    return vit(models.DINOV2Backbone, intermediate_dim=16, position_embedding_shape=(48, 48))


def _cspnet() -> keras.Model:
    return models.CSPNetBackbone(
        stem_filters=8,
        stem_kernel_size=3,
        stem_strides=4,
        stackwise_depth=[1, 2],
        stackwise_strides=[2, 2],
        stackwise_num_filters=[8, 16],
        block_type="dark_block",
        stage_type="dark",
        image_shape=(32, 32, 3),
    )


def _mobilenet() -> keras.Model:
    return models.MobileNetBackbone(
        stackwise_expansion=[[8], [16, 16]],
        stackwise_num_blocks=[1, 2],
        stackwise_num_filters=[[8], [8, 8]],
        stackwise_kernel_size=[[3], [5, 5]],
        stackwise_num_strides=[[2], [2, 1]],
        stackwise_se_ratio=[[None], [0.25, 0.25]],
        stackwise_activation=[["relu"], ["hard_swish", "hard_swish"]],
        stackwise_padding=[[1], [2, 2]],
        output_num_filters=16,
        depthwise_filters=8,
        depthwise_stride=1,
        depthwise_residual=True,
        last_layer_filter=16,
        squeeze_and_excite=0.5,
        input_num_filters=8,
        image_shape=(64, 64, 3),
    )


def _mobilenet_v5() -> keras.Model:
    return models.MobileNetV5Backbone(
        stackwise_block_types=[["er"], ["uir", "mqa"]],
        stackwise_num_blocks=[1, 2],
        stackwise_num_filters=[[8], [16, 16]],
        stackwise_strides=[[2], [2, 1]],
        stackwise_act_layers=[["gelu"], ["gelu", "gelu"]],
        stackwise_exp_ratios=[[2.0], [2.0, 1.0]],
        stackwise_se_ratios=[[0.0], [0.0, 0.0]],
        stackwise_dw_kernel_sizes=[[0], [3, 3]],
        stackwise_dw_start_kernel_sizes=[[0], [3, 0]],
        stackwise_dw_end_kernel_sizes=[[0], [0, 0]],
        stackwise_exp_kernel_sizes=[[3], [0, 0]],
        stackwise_pw_kernel_sizes=[[1], [0, 0]],
        stackwise_num_heads=[[0], [0, 2]],
        stackwise_key_dims=[[0], [0, 4]],
        stackwise_value_dims=[[0], [0, 4]],
        stackwise_kv_strides=[[0], [0, 2]],
        stackwise_use_cpe=[[False], [False, False]],
        stem_size=8,
        num_features=16,
        msfa_output_resolution=4,
        drop_path_rate=0.1,
        layer_scale_init_value=0.1,
        image_shape=(32, 32, 3),
    )


def _mit() -> keras.Model:
    return models.MiTBackbone(
        layerwise_depths=[1, 1],
        num_layers=2,
        layerwise_num_heads=[1, 2],
        layerwise_sr_ratios=[2, 1],
        max_drop_path_rate=0.1,
        layerwise_patch_sizes=[7, 3],
        layerwise_strides=[4, 2],
        hidden_dims=[4, 8],
        image_shape=(32, 32, 3),
    )


def hgnetv2(**kwargs: Any) -> keras.Model:
    """Make the network on which D-FINE stands."""
    return models.HGNetV2Backbone(
        depths=[1, 1, 1],
        embedding_size=8,
        hidden_sizes=[8, 16, 32],
        stem_channels=[3, 8, 8],
        hidden_act="relu",
        use_learnable_affine_block=True,
        stackwise_stage_filters=[
            (8, 8, 8, 1, 2, 3),
            (8, 8, 16, 1, 2, 3),
            (16, 8, 32, 1, 2, 5),
        ],
        apply_downsample=[False, True, True],
        use_lightweight_conv_block=[False, False, True],
        image_shape=(64, 64, 3),
        **kwargs,
    )


def _swin() -> keras.Model:
    return models.SwinTransformerBackbone(
        image_shape=(32, 32, 3),
        embed_dim=8,
        depths=[2, 1],
        num_heads=[2, 4],
        window_size=4,
    )


def _dinov3() -> keras.Model:
    return vit(models.DINOV3Backbone, intermediate_dim=16, use_gated_mlp=True)


def _vision(name: str, build: Any, batch: Any = images) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _vision("ResNetBackbone", resnet),
    _vision("CSPNetBackbone[dark]", _cspnet),
    _vision("MobileNetBackbone", _mobilenet, partial(images, 64)),
    _vision("MobileNetV5Backbone", _mobilenet_v5),
    _vision("MiTBackbone", _mit),
    _vision("SwinTransformerBackbone", _swin),
    _vision("ViTBackbone", partial(vit, models.ViTBackbone, mlp_dim=16, dropout_rate=0.1)),
    _vision("DINOV2Backbone", dinov2, lambda: {"images": images()}),
    _vision("DINOV3Backbone", _dinov3, lambda: {"pixel_values": images()}),
)
