"""Backbones of keras-hub that hear: Whisper, Moonshine, Gemma 3n and Gemma 4."""

from __future__ import annotations

from typing import Any

import keras
import keras_hub
import numpy as np
from keras_hub.src.models.gemma3n.gemma3n_audio_encoder import Gemma3nAudioEncoder
from keras_hub.src.models.gemma4.gemma4_audio_encoder import Gemma4AudioEncoder

from tests.corpus.architecture import Architecture
from tests.corpus.architectures.keras_hub_text import tokens

__all__ = ["ARCHITECTURES", "waves"]

VOCABULARY_SIZE = 32

models = keras_hub.models

_GEMMA4 = {
    "vocabulary_size": VOCABULARY_SIZE,
    "image_size": 16,
    "num_layers": 2,
    "num_query_heads": 2,
    "num_key_value_heads": 1,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "head_dim": 4,
}


def _gemma4() -> keras.Model:
    encoder = Gemma4AudioEncoder(
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
        **_GEMMA4,
        audio_encoder=encoder,
        num_audio_tokens_per_clip=4,
        sliding_window_size=4,
        hidden_size_per_layer_input=4,
        vocab_size_per_layer_input=VOCABULARY_SIZE,
    )


def _positioned_tokens() -> dict[str, Any]:
    return {**tokens(), "position_ids": np.tile(np.arange(8, dtype="int32"), (2, 1))}


def _gemma4_batch() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        **_positioned_tokens(),
        "audio_mel": rng.random((2, 1, 16, 16)).astype("float32"),
        "audio_mel_mask": np.ones((2, 1, 16), "int32"),
        "audio_mask": np.repeat([[0, 1, 1, 1, 1, 0, 0, 0]], 2, axis=0).astype("int32"),
        "audio_indices": np.repeat([[1, 2, 3, 4]], 2, axis=0).astype("int32"),
    }


def _gemma4_text() -> keras.Model:
    experts = {"num_experts": 4, "expert_intermediate_dim": 8, "num_experts_per_token": 2}
    return models.Gemma4Backbone(
        **_GEMMA4,
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


def _whisper() -> keras.Model:
    return models.WhisperBackbone(
        vocabulary_size=VOCABULARY_SIZE,
        num_mels=8,
        dropout=0.1,
        max_encoder_sequence_length=16,
        max_decoder_sequence_length=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )


def _sounds() -> dict[str, np.ndarray]:
    decoder = {f"decoder_{name}": value for name, value in tokens().items()}
    features = np.random.default_rng(1).random((2, 16, 8)).astype("float32")
    return {"encoder_features": features, **decoder}


def _moonshine() -> keras.Model:
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


def _heard(name: str, build: Any, batch: Any) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _heard("Gemma3nBackbone", _gemma3n, _gemma3n_batch),
    _heard("Gemma3nBackbone[sound]", _gemma3n_with_sound, _gemma3n_sound_batch),
    _heard("Gemma4Backbone", _gemma4_text, _positioned_tokens),
    _heard("Gemma4Backbone[sound]", _gemma4, _gemma4_batch),
    _heard("WhisperBackbone", _whisper, _sounds),
    _heard("MoonshineBackbone", _moonshine, waves),
)
