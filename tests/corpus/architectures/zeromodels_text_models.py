"""Language, speech and image-with-text models of zeromodels, in their smallest sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np
from zeromodels.models import (
    bart,
    bert,
    deberta,
    deepseek_v3,
    llama4,
    minimax,
    mixtral,
    moonshine,
    owlvit,
    qwen3_next,
    t5,
)

from tests.corpus.architecture import Architecture

__all__ = ["ARCHITECTURES"]

_VOCABULARY = 32
_LENGTH = 8

_TRANSFORMER = {
    "vocab_size": _VOCABULARY,
    "embed_dim": 16,
    "num_layers": 2,
    "num_heads": 2,
    "mlp_dim": 32,
}
_ENCODER = {**_TRANSFORMER, "max_position_embeddings": 16}
_DECODER = {**_TRANSFORMER, "num_kv_heads": 1, "head_dim": 8}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_SPEECH = {
    "hidden_dim": 16,
    "encoder_num_layers": 1,
    "decoder_num_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": _VOCABULARY,
}


def _tokens(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(3, _VOCABULARY, (2, _LENGTH), dtype=np.int32)


def _padding_mask() -> np.ndarray:
    """The second sample is shorter than the first."""
    mask = np.ones((2, _LENGTH), dtype=np.int32)
    mask[1, -2:] = 0
    return mask


def _uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random((2, *shape), dtype=np.float32)


def _text() -> dict[str, np.ndarray]:
    return {"input_ids": _tokens(), "attention_mask": _padding_mask()}


def _text_in_segments() -> dict[str, np.ndarray]:
    return {**_text(), "token_type_ids": np.zeros((2, _LENGTH), dtype=np.int32)}


def _text_to_text() -> dict[str, np.ndarray]:
    return {**_text(), "decoder_input_ids": _tokens(seed=1)}


def _waveform_to_text() -> dict[str, np.ndarray]:
    return {"input_values": _uniform(2000), "decoder_input_ids": _tokens()}


def _image_and_queries() -> dict[str, np.ndarray]:
    return {"pixel_values": _uniform(32, 32, 3), "input_ids": _tokens()}


def _architecture(
    factory: Callable[..., keras.Model], batch: Callable[[], Any], **settings: Any
) -> Architecture:
    return Architecture(
        name=f"zeromodels/{factory.__name__}", build=partial(factory, **settings), batch=batch
    )


_ENCODERS = (
    _architecture(bert.BertModel, _text_in_segments, **_ENCODER),
    _architecture(deberta.DebertaModel, _text_in_segments, **_ENCODER, max_relative_positions=16),
)

_DECODERS = (
    _architecture(
        deepseek_v3.DeepseekV3Model,
        _text,
        **_TRANSFORMER,
        **_EXPERTS,
        moe_mlp_dim=16,
        n_group=2,
        topk_group=1,
        first_k_dense=1,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_nope_head_dim=8,
        qk_rope_head_dim=4,
        v_head_dim=8,
    ),
    _architecture(
        llama4.Llama4Model,
        _text,
        **_DECODER,
        dense_mlp_dim=32,
        num_experts=4,
        interleave_moe_layer_step=2,
        no_rope_layer_interval=2,
        attention_chunk_size=4,
    ),
    _architecture(minimax.MiniMaxModel, _text, **_DECODER, **_EXPERTS, block_size=4),
    _architecture(mixtral.MixtralModel, _text, **_DECODER, **_EXPERTS),
    _architecture(
        qwen3_next.Qwen3NextModel,
        _text,
        **_DECODER,
        **_EXPERTS,
        full_attention_interval=2,
        linear_key_head_dim=4,
        linear_value_head_dim=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        moe_mlp_dim=16,
        shared_mlp_dim=16,
        partial_rotary_factor=0.5,
    ),
)

_ENCODER_DECODERS = (
    _architecture(bart.BartModel, _text_to_text, **_SPEECH, max_position_embeddings=16),
    _architecture(
        moonshine.MoonshineModel,
        _waveform_to_text,
        **_SPEECH,
        max_position_embeddings=16,
        partial_rotary_factor=0.5,
    ),
    _architecture(t5.T5Model, _text_to_text, **_TRANSFORMER, num_decoder_layers=2, key_value_dim=8),
)

_IMAGE_AND_TEXT = (
    _architecture(
        owlvit.OwlViTModel,
        _image_and_queries,
        vision_image_size=32,
        vision_patch_size=16,
        vision_hidden_dim=16,
        vision_intermediate_size=32,
        vision_num_layers=1,
        vision_num_heads=2,
        text_hidden_dim=16,
        text_intermediate_size=32,
        text_num_heads=2,
        projection_dim=16,
        text_num_layers=1,
        text_max_position_embeddings=_LENGTH,
        text_vocab_size=_VOCABULARY,
    ),
)

ARCHITECTURES: tuple[Architecture, ...] = (
    *_ENCODERS,
    *_DECODERS,
    *_ENCODER_DECODERS,
    *_IMAGE_AND_TEXT,
)
