"""Backbones of keras-hub that detect, segment, read, and decode images or videos."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import keras_hub
import numpy as np
from keras_hub.src.models.vae.vae_backbone import VAEBackbone

from tests.corpus.architecture import Architecture
from tests.corpus.architectures.keras_hub_text import tokens
from tests.corpus.architectures.keras_hub_vision import dinov2, hgnetv2, images, resnet, vit

__all__ = ["ARCHITECTURES", "sam_prompts"]

models = keras_hub.models


def _d_fine() -> keras.Model:
    return models.DFineBackbone(
        backbone=hgnetv2(out_features=["stage2", "stage3"]),
        decoder_in_channels=[16, 16],
        encoder_hidden_dim=16,
        num_labels=4,
        num_denoising=0,
        learn_initial_query=False,
        num_queries=10,
        anchor_image_size=(64, 64),
        feat_strides=[8, 16],
        num_feature_levels=2,
        hidden_dim=16,
        encoder_in_channels=[16, 32],
        encode_proj_layers=[1],
        num_attention_heads=2,
        encoder_ffn_dim=32,
        num_encoder_layers=1,
        hidden_expansion=0.5,
        depth_multiplier=0.34,
        eval_idx=-1,
        num_decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        decoder_n_points=[2, 2],
        lqe_hidden_dim=8,
        num_lqe_layers=1,
        out_features=["stage2", "stage3"],
        image_shape=(64, 64, 3),
        seed=0,
    )


def _vit_det() -> keras.Model:
    return models.ViTDetBackbone(
        hidden_size=8,
        num_layers=2,
        intermediate_dim=16,
        num_heads=2,
        global_attention_layer_indices=[1],
        image_shape=(32, 32, 3),
        patch_size=8,
        num_output_channels=8,
        window_size=2,
    )


def _sam() -> keras.Model:
    return models.SAMBackbone(
        image_encoder=_vit_det(),
        prompt_encoder=keras_hub.layers.SAMPromptEncoder(
            hidden_size=8,
            image_embedding_size=(4, 4),
            input_image_size=(32, 32),
            mask_in_channels=4,
        ),
        mask_decoder=keras_hub.layers.SAMMaskDecoder(
            num_layers=2,
            hidden_size=8,
            intermediate_dim=16,
            num_heads=2,
            embedding_dim=8,
            num_multimask_outputs=3,
            iou_head_depth=2,
            iou_head_hidden_dim=8,
        ),
    )


def sam_prompts() -> dict[str, np.ndarray]:
    """Make images with a point, a box and a mask each."""
    rng = np.random.default_rng(1)
    return {
        "images": images(),
        "points": rng.uniform(0, 32, (2, 1, 2)).astype("float32"),
        "labels": np.ones((2, 1), "float32"),
        "boxes": np.full((2, 1, 2, 2), [[4.0, 4.0], [20.0, 24.0]], "float32"),
        "masks": rng.random((2, 1, 16, 16, 1)).astype("float32"),
    }


def _vae() -> keras.Model:
    return VAEBackbone([32, 32], [1, 1], [32, 32], [1, 1], sample_channels=8)


def _deeplab() -> keras.Model:
    return models.DeepLabV3Backbone(
        image_encoder=resnet(64),
        spatial_pyramid_pooling_key="P4",
        upsampling_size=4,
        dilation_rates=[2, 4],
        low_level_feature_key="P2",
        projection_filters=4,
        image_shape=(64, 64, 3),
    )


def _depth_anything() -> keras.Model:
    return models.DepthAnythingBackbone(
        image_encoder=dinov2(),
        reassemble_factors=[2, 1],
        neck_hidden_dims=[8, 8],
        fusion_hidden_dim=8,
        head_hidden_dim=4,
        head_in_index=-1,
        feature_keys=["stage1", "stage2"],
    )


def _parseq() -> keras.Model:
    return models.PARSeqBackbone(
        image_encoder=vit(models.ViTBackbone, mlp_dim=16, use_class_token=False, name="encoder"),
        vocabulary_size=32,
        max_label_length=8,
        decoder_hidden_dim=8,
        num_decoder_layers=1,
        num_decoder_heads=2,
        decoder_mlp_dim=16,
    )


def _retinanet() -> keras.Model:
    return models.RetinaNetBackbone(
        image_encoder=resnet(64),
        min_level=3,
        max_level=6,
        use_p5=True,
        use_fpn_batch_norm=True,
        image_shape=(64, 64, 3),
    )


def _video_prism() -> keras.Model:
    return models.VideoPrismBackbone(
        num_frames=2,
        patch_size=8,
        hidden_dim=8,
        intermediate_dim=16,
        num_heads=2,
        num_spatial_layers=1,
        num_temporal_layers=1,
        num_auxiliary_layers=0,
        attention_logit_soft_cap=50.0,
        image_shape=(16, 16, 3),
    )


def _dense(name: str, build: Any, batch: Any = images) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _dense("DeepLabV3Backbone", _deeplab, partial(images, 64)),
    _dense("DepthAnythingBackbone", _depth_anything),
    _dense("DFineBackbone", _d_fine, partial(images, 64)),
    _dense("PARSeqBackbone", _parseq, lambda: {"images": images(), **tokens()}),
    _dense("RetinaNetBackbone", _retinanet, partial(images, 64)),
    _dense("SAMBackbone", _sam, sam_prompts),
    _dense("VAEBackbone", _vae),
    _dense("VideoPrismBackbone", _video_prism, partial(images, 16, 2)),
)
