"""Backbones of keras-hub that join text with images, and its image generators."""

from __future__ import annotations

from typing import Any

import keras
import keras_hub
import numpy as np
from keras_hub.src.models.vae.vae_backbone import VAEBackbone

from tests.corpus.architecture import Architecture
from tests.corpus.architectures.keras_hub_text import tokens
from tests.corpus.architectures.keras_hub_vision import images

__all__ = ["ARCHITECTURES"]

IMAGE_SIZE = 16
VOCABULARY_SIZE = 32

models = keras_hub.models

_TRANSFORMER = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "intermediate_dim": 16}


def _text_encoder(cls: Any, **kwargs: Any) -> keras.Model:
    return cls(
        vocabulary_size=VOCABULARY_SIZE,
        embedding_dim=8,
        max_sequence_length=8,
        **_TRANSFORMER,
        **kwargs,
    )


def _vision_encoder(cls: Any) -> keras.Model:
    return cls(patch_size=8, image_shape=(IMAGE_SIZE, IMAGE_SIZE, 3), **_TRANSFORMER)


def _clip() -> keras.Model:
    return models.CLIPBackbone(
        _vision_encoder(models.CLIPVisionEncoder),
        _text_encoder(models.CLIPTextEncoder),
        projection_dim=4,
    )


def _blip2() -> keras.Model:
    queries = {"num_query_tokens": 2}
    return models.BLIP2Backbone(
        vision_encoder=models.BLIP2VisionEncoder(
            image_size=IMAGE_SIZE,
            patch_size=8,
            use_patch_bias=True,
            use_class_token=True,
            use_mha_bias=True,
            use_mlp_bias=True,
            dropout_rate=0.1,
            layer_norm_epsilon=1e-6,
            initializer_range=0.02,
            **_TRANSFORMER,
        ),
        qformer=models.BLIP2QFormer(
            **queries,
            **_TRANSFORMER,
            vision_dim=8,
            cross_attention_frequency=2,
            dropout=0.1,
            layer_norm_epsilon=1e-6,
        ),
        language_model=models.BLIP2CustomOPT(
            vocabulary_size=VOCABULARY_SIZE,
            qformer_hidden_dim=8,
            dropout=0.1,
            max_sequence_length=16,
            **queries,
            **_TRANSFORMER,
        ),
    )


def _captions() -> dict[str, Any]:
    return {"images": images(IMAGE_SIZE), **tokens()}


def _captions_without_mask() -> dict[str, Any]:
    return {"images": images(IMAGE_SIZE), "token_ids": tokens()["token_ids"]}


def _pali_gemma() -> keras.Model:
    return models.PaliGemmaBackbone(
        vocabulary_size=VOCABULARY_SIZE,
        image_size=IMAGE_SIZE,
        num_layers=2,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=8,
        intermediate_dim=16,
        head_dim=4,
        vit_patch_size=8,
        vit_num_heads=2,
        vit_hidden_dim=8,
        vit_num_layers=2,
        vit_intermediate_dim=16,
    )


def _pali_gemma_batch() -> dict[str, Any]:
    """The prompt and the response have four tokens each."""
    response_mask = np.repeat([[0] * 4 + [1] * 4], 2, axis=0).astype("int32")
    return {"response_mask": response_mask, **_captions()}


def _flux() -> keras.Model:
    return models.FluxBackbone(
        input_channels=4,
        hidden_size=16,
        mlp_ratio=2.0,
        num_heads=2,
        depth=1,
        depth_single_blocks=1,
        axes_dim=[2, 2, 4],
        theta=10000,
        use_bias=True,
        image_shape=(4, 4),
        text_shape=(8, 6),
        image_ids_shape=(4, 3),
        text_ids_shape=(8, 3),
        y_shape=(6,),
        guidance_embed=True,
    )


def _flux_batch() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "image": (4, 4),
        "image_ids": (4, 3),
        "text": (8, 6),
        "text_ids": (8, 3),
        "y": (6,),
        "timesteps": (),
        "guidance": (),
    }
    return {name: rng.random((2, *shape)).astype("float32") for name, shape in shapes.items()}


def _stable_diffusion3() -> keras.Model:
    return models.StableDiffusion3Backbone(
        mmdit_patch_size=2,
        mmdit_hidden_dim=16,
        mmdit_num_layers=2,
        mmdit_num_heads=2,
        mmdit_position_size=8,
        mmdit_qk_norm="rms_norm",
        mmdit_dual_attention_indices=(0,),
        vae=VAEBackbone(
            [32, 32, 32, 32], [1, 1, 1, 1], [32, 32, 32, 32], [1, 1, 1, 1], sample_channels=8
        ),
        clip_l=_text_encoder(models.CLIPTextEncoder, intermediate_output_index=0, name="clip_l"),
        clip_g=_text_encoder(models.CLIPTextEncoder, intermediate_output_index=0, name="clip_g"),
        latent_channels=4,
        image_shape=(32, 32, 3),
    )


def _stable_diffusion3_batch() -> dict[str, np.ndarray]:
    ids = tokens()["token_ids"]
    kinds = ("token_ids", "negative_token_ids")
    prompts = {f"clip_{size}_{kind}": ids for size in "lg" for kind in kinds}
    return {
        **prompts,
        "images": images(),
        "latents": np.random.default_rng(1).random((2, 4, 4, 4)).astype("float32"),
        "num_steps": np.full((2,), 2, "int32"),
        "guidance_scale": np.full((2,), 7.0, "float32"),
    }


def _sam3() -> keras.Model:
    config = {"hidden_dim": 8, "intermediate_dim": 16, "num_heads": 2}
    image = {"image_shape": (56, 56, 3), "patch_size": 14}
    layers = keras_hub.layers
    return models.SAM3PromptableConceptBackbone(
        vision_encoder=layers.SAM3VisionEncoder(
            num_layers=2,
            fpn_hidden_dim=8,
            fpn_scale_factors=[4.0, 2.0, 1.0, 0.5],
            pretrain_image_shape=(28, 28, 3),
            window_size=2,
            global_attn_indexes=[1],
            **image,
            **config,
        ),
        text_encoder=layers.SAM3TextEncoder(
            vocabulary_size=VOCABULARY_SIZE, embedding_dim=8, num_layers=1, **config
        ),
        geometry_encoder=layers.SAM3GeometryEncoder(num_layers=1, roi_size=3, **config),
        detr_encoder=layers.SAM3DetrEncoder(num_layers=1, **config),
        detr_decoder=layers.SAM3DetrDecoder(num_layers=1, num_queries=5, **image, **config),
        mask_decoder=layers.SAM3MaskDecoder(num_upsampling_stages=3, hidden_dim=8, num_heads=2),
    )


def _sam3_batch() -> dict[str, Any]:
    return {
        **tokens(),
        "pixel_values": images(56),
        "boxes": np.full((2, 1, 5), 0.4, "float32"),
        "box_labels": np.ones((2, 1), "int32"),
    }


def _joint(name: str, build: Any, batch: Any = _captions_without_mask) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _joint("CLIPBackbone", _clip),
    _joint("BLIP2Backbone[opt]", _blip2, _captions),
    _joint("PaliGemmaBackbone", _pali_gemma, _pali_gemma_batch),
    _joint("FluxBackbone", _flux, _flux_batch),
    _joint("StableDiffusion3Backbone", _stable_diffusion3, _stable_diffusion3_batch),
    _joint("SAM3PromptableConceptBackbone", _sam3, _sam3_batch),
)
