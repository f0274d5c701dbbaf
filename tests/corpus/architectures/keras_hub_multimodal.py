"""Backbones of keras-hub that join text with images or sound, and its image generators."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import keras_hub
import numpy as np
from keras_hub.src.models.gemma3n.gemma3n_audio_encoder import Gemma3nAudioEncoder
from keras_hub.src.models.vae.vae_backbone import VAEBackbone

from tests.corpus.architecture import Architecture
from tests.corpus.architectures.keras_hub_text import tokens
from tests.corpus.architectures.keras_hub_vision import images

__all__ = ["ARCHITECTURES", "moonshine", "pali_gemma", "sounds", "whisper"]

IMAGE_SIZE = 16
VOCABULARY_SIZE = 32

models = keras_hub.models

_TRANSFORMER = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "intermediate_dim": 16}
_DECODER = {
    "vocabulary_size": VOCABULARY_SIZE,
    "image_size": IMAGE_SIZE,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "head_dim": 4,
}


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


def _metaclip2() -> keras.Model:
    return models.MetaCLIP2Backbone(
        _vision_encoder(models.MetaCLIP2VisionEncoder),
        _text_encoder(models.MetaCLIP2TextEncoder),
        projection_dim=4,
    )


def _siglip() -> keras.Model:
    return models.SigLIPBackbone(
        _vision_encoder(models.SigLIPVisionEncoder),
        _text_encoder(models.SigLIPTextEncoder),
    )


def _blip2(language_model: Any, **kwargs: Any) -> keras.Model:
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
        language_model=language_model(
            vocabulary_size=VOCABULARY_SIZE,
            qformer_hidden_dim=8,
            dropout=0.1,
            **queries,
            **_TRANSFORMER,
            **kwargs,
        ),
    )


def _captions() -> dict[str, Any]:
    return {"images": images(IMAGE_SIZE), **tokens()}


def _caption_pairs() -> dict[str, Any]:
    sides = {f"{s}_{k}": v for s in ("encoder", "decoder") for k, v in tokens().items()}
    return {"images": images(IMAGE_SIZE), **sides}


def _captions_without_mask() -> dict[str, Any]:
    return {"images": images(IMAGE_SIZE), "token_ids": tokens()["token_ids"]}


def pali_gemma() -> keras.Model:
    """Make PaliGemma with its image encoder."""
    return models.PaliGemmaBackbone(
        **_DECODER,
        vit_patch_size=8,
        vit_num_heads=2,
        vit_hidden_dim=8,
        vit_num_layers=2,
        vit_intermediate_dim=16,
    )


def pali_gemma_batch() -> dict[str, Any]:
    """Make images with a prompt of four tokens and a response of four."""
    response_mask = np.repeat([[0] * 4 + [1] * 4], 2, axis=0).astype("int32")
    return {"response_mask": response_mask, **_captions()}


def _gemma3() -> keras.Model:
    encoder = keras_hub.src.models.gemma3.gemma3_vision_encoder.Gemma3VisionEncoder(
        image_size=IMAGE_SIZE, patch_size=4, pool_size=2, output_dim=8, **_TRANSFORMER
    )
    return models.Gemma3Backbone(**_DECODER, vision_encoder=encoder)


def _gemma3_batch() -> dict[str, Any]:
    vision_mask = np.repeat([[0, 1, 1, 1, 1, 0, 0, 0]], 2, axis=0).astype("int32")
    return {
        **tokens(),
        "images": images(IMAGE_SIZE, 1),
        "vision_mask": vision_mask,
        "vision_indices": np.repeat([[1, 2, 3, 4]], 2, axis=0).astype("int32"),
    }


def _gemma4(**kwargs: Any) -> keras.Model:
    encoder = keras_hub.src.models.gemma4.gemma4_audio_encoder.Gemma4AudioEncoder(
        input_feat_size=16,
        hidden_size=8,
        num_heads=2,
        num_layers=1,
        chunk_size=4,
        context_left=5,
        sscp_conv_channels=(4, 4),
        output_proj_dims=8,
        output_dim=8,
    )
    return models.Gemma4Backbone(
        **_DECODER,
        audio_encoder=encoder,
        num_audio_tokens_per_clip=4,
        sliding_window_size=4,
        hidden_size_per_layer_input=4,
        vocab_size_per_layer_input=VOCABULARY_SIZE,
        **kwargs,
    )


def positions(length: int = 8) -> dict[str, np.ndarray]:
    """Make the positions of the tokens, which Gemma 4 wants beside them."""
    return {"position_ids": np.repeat(np.arange(length)[None], 2, axis=0).astype("int32")}


def _gemma4_batch() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        **tokens(),
        **positions(),
        "audio_mel": rng.random((2, 1, 16, 16)).astype("float32"),
        "audio_mel_mask": np.ones((2, 1, 16), "int32"),
        "audio_mask": np.repeat([[0, 1, 1, 1, 1, 0, 0, 0]], 2, axis=0).astype("int32"),
        "audio_indices": np.repeat([[1, 2, 3, 4]], 2, axis=0).astype("int32"),
    }


def _gemma4_text() -> keras.Model:
    experts = {"num_experts": 4, "expert_intermediate_dim": 8, "num_experts_per_token": 2}
    return models.Gemma4Backbone(
        **_DECODER,
        sliding_window_size=4,
        sliding_window_pattern=2,
        enable_moe_block=True,
        **experts,
    )


def _gemma3n(**kwargs: Any) -> keras.Model:
    return models.Gemma3nBackbone(
        text_vocab_size=VOCABULARY_SIZE,
        text_hidden_size=8,
        num_hidden_layers=2,
        pad_token_id=0,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        intermediate_size=[16, 16],
        hidden_activation="gelu_approximate",
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=4,
        rope_theta=10000.0,
        max_position_embeddings=16,
        vocab_size_per_layer_input=VOCABULARY_SIZE,
        hidden_size_per_layer_input=4,
        altup_num_inputs=2,
        laurel_rank=2,
        activation_sparsity_pattern=[0.5, 0.0],
        **kwargs,
    )


def _gemma3n_with_sound() -> keras.Model:
    encoder = Gemma3nAudioEncoder(
        hidden_size=8,
        input_feat_size=16,
        sscp_conv_channel_size=[4, 4],
        sscp_conv_kernel_size=[(3, 3), (3, 3)],
        sscp_conv_stride_size=[(2, 2), (2, 2)],
        sscp_conv_group_norm_eps=1e-5,
        num_hidden_layers=1,
        rms_norm_eps=1e-6,
        gradient_clipping=1.0,
        residual_weight=0.5,
        num_attention_heads=2,
        attention_chunk_size=4,
        num_attention_context_right=2,
        num_attention_context_left=3,
        attention_logit_cap=50.0,
        conv_kernel_size=3,
        reduction_factor=1,
    )
    return _gemma3n(
        audio_encoder_config=encoder.get_config(),
        audio_hidden_size=8,
        audio_vocab_offset=24,
        audio_vocab_size=8,
        audio_token_id=23,
        audio_soft_tokens_per_image=4,
    )


def _gemma3n_sound_batch() -> dict[str, Any]:
    batch = _gemma3n_batch()
    batch["token_ids"] %= 23
    batch["token_ids"][:, 1:5] = 23
    batch["input_features"] = np.random.default_rng(1).random((2, 1, 16, 16)).astype("float32")
    batch["input_features_mask"] = np.zeros((2, 1, 16), bool)
    return batch


def _gemma3n_batch() -> dict[str, Any]:
    batch = tokens()
    return batch | {"padding_mask": batch["padding_mask"].astype(bool)}


def _flux(**kwargs: Any) -> keras.Model:
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
        **kwargs,
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
    prompts = {f"clip_{size}_{kind}" : ids for size in "lg" for kind in ("token_ids", "negative_token_ids")}
    return {
        **prompts,
        "images": images(),
        "latents": np.random.default_rng(1).random((2, 4, 4, 4)).astype("float32"),
        "num_steps": np.full((2,), 2, "int32"),
        "guidance_scale": np.full((2,), 7.0, "float32"),
    }


def whisper() -> keras.Model:
    """Make the listener that reads log-mel spectra."""
    return models.WhisperBackbone(
        vocabulary_size=VOCABULARY_SIZE,
        num_mels=8,
        dropout=0.1,
        max_encoder_sequence_length=16,
        max_decoder_sequence_length=8,
        **_TRANSFORMER,
    )


def sounds() -> dict[str, np.ndarray]:
    """Make spectra of 16 frames with the tokens said in them."""
    decoder = {f"decoder_{name}": value for name, value in tokens().items()}
    features = np.random.default_rng(1).random((2, 16, 8)).astype("float32")
    return {"encoder_features": features, **decoder}


def moonshine() -> keras.Model:
    """Make the listener that reads raw samples."""
    return models.MoonshineBackbone(
        vocabulary_size=VOCABULARY_SIZE,
        filter_dim=16,
        encoder_num_layers=1,
        decoder_num_layers=1,
        hidden_dim=16,
        intermediate_dim=32,
        encoder_num_heads=2,
        decoder_num_heads=2,
        dropout=0.1,
    )


def waves() -> dict[str, np.ndarray]:
    """Make two waves of 2000 samples with the tokens said in them."""
    said = tokens()
    return {
        "encoder_input_values": np.random.default_rng(1).random((2, 2000, 1)).astype("float32"),
        "encoder_padding_mask": np.ones((2, 2000), bool),
        "decoder_token_ids": said["token_ids"],
        "decoder_padding_mask": said["padding_mask"].astype(bool),
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
    _joint("MetaCLIP2Backbone", _metaclip2),
    _joint("SigLIPBackbone", _siglip),
    _joint("BLIP2Backbone[opt]", partial(_blip2, models.BLIP2CustomOPT, max_sequence_length=16), _captions),
    _joint("BLIP2Backbone[flan_t5]", partial(_blip2, models.BLIP2FlanT5), _caption_pairs),
    _joint("PaliGemmaBackbone", pali_gemma, pali_gemma_batch),
    _joint("Gemma3Backbone[vision]", _gemma3, _gemma3_batch),
    _joint("Gemma3nBackbone", _gemma3n, _gemma3n_batch),
    _joint("Gemma3nBackbone[sound]", _gemma3n_with_sound, _gemma3n_sound_batch),
    _joint("Gemma4Backbone", _gemma4_text, lambda: {**tokens(), **positions()}),
    _joint("Gemma4Backbone[sound]", _gemma4, _gemma4_batch),
    _joint("FluxBackbone", partial(_flux, guidance_embed=True), _flux_batch),
    _joint("StableDiffusion3Backbone", _stable_diffusion3, _stable_diffusion3_batch),
    _joint("WhisperBackbone", whisper, sounds),
    _joint("MoonshineBackbone", moonshine, waves),
    _joint("SAM3PromptableConceptBackbone", _sam3, _sam3_batch),
)
