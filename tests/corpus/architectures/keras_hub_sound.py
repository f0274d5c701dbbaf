"""Backbones of keras-hub that hear: Whisper, Moonshine, Gemma 3n and Gemma 4."""

from __future__ import annotations

from typing import Any

import keras
import keras_hub
import numpy as np

from tests.corpus.architecture import Architecture
from tests.corpus.architectures.keras_hub_text import tokens

__all__ = ["ARCHITECTURES", "waves"]

VOCABULARY_SIZE = 32

models = keras_hub.models


def _positioned_tokens() -> dict[str, Any]:
    return {**tokens(), "position_ids": np.tile(np.arange(8, dtype="int32"), (2, 1))}


def _gemma4() -> keras.Model:
    return models.Gemma4Backbone(
        vocabulary_size=VOCABULARY_SIZE,
        image_size=16,
        num_layers=2,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=8,
        intermediate_dim=16,
        head_dim=4,
        sliding_window_size=4,
        sliding_window_pattern=2,
        enable_moe_block=True,
        num_experts=4,
        expert_intermediate_dim=8,
        num_experts_per_token=2,
    )


def _gemma3n() -> keras.Model:
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
    )


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
    _heard("Gemma4Backbone", _gemma4, _positioned_tokens),
    _heard("WhisperBackbone", _whisper, _sounds),
    _heard("MoonshineBackbone", _moonshine, waves),
)
