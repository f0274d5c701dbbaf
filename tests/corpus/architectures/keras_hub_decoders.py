"""Text backbones of keras-hub that decode: causal transformers, mixtures of experts, RWKV."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras_hub

from tests.corpus.architecture import Architecture
from tests.corpus.architectures.keras_hub_text import VOCABULARY_SIZE, tokens

__all__ = ["ARCHITECTURES"]

models = keras_hub.models

_PLAIN = {
    "vocabulary_size": VOCABULARY_SIZE,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
}
_DECODER = {
    "vocabulary_size": VOCABULARY_SIZE,
    "num_layers": 2,
    "num_query_heads": 4,
    "num_key_value_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
_EXPERTS = {"num_experts": 4, "top_k": 2}
_LINEAR_ATTENTION = {
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "partial_rotary_factor": 0.5,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 2,
}


def _plain(cls: Any, **kwargs: Any) -> Any:
    return partial(cls, **_PLAIN, **kwargs)


def _decoder(cls: Any, **kwargs: Any) -> Any:
    return partial(cls, **_DECODER, **kwargs)


def _text(name: str, build: Any, batch: Any = tokens) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _text("BloomBackbone", _plain(models.BloomBackbone)),
    _text(
        "FalconBackbone",
        partial(
            models.FalconBackbone,
            vocabulary_size=VOCABULARY_SIZE,
            num_layers=2,
            num_attention_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
        ),
    ),
    _text("GPT2Backbone", _plain(models.GPT2Backbone)),
    _text("GPTNeoXBackbone", _plain(models.GPTNeoXBackbone, rotary_percentage=0.5)),
    _text("OPTBackbone", _plain(models.OPTBackbone)),
    _text(
        "GemmaBackbone",
        _decoder(models.GemmaBackbone, head_dim=4, attention_logit_soft_cap=50.0),
    ),
    _text(
        "GemmaBackbone[v2]",
        _decoder(
            models.GemmaBackbone,
            head_dim=4,
            use_post_ffw_norm=True,
            use_post_attention_norm=True,
            attention_logit_soft_cap=50.0,
            final_logit_soft_cap=30.0,
            use_sliding_window_attention=True,
            sliding_window_size=4,
        ),
    ),
    _text(
        "Gemma3Backbone",
        _decoder(
            models.Gemma3Backbone,
            image_size=16,
            head_dim=4,
            use_post_ffw_norm=True,
            use_post_attention_norm=True,
            use_sliding_window_attention=True,
            sliding_window_size=4,
        ),
    ),
    _text(
        "GptOssBackbone",
        _decoder(models.GptOssBackbone, **_EXPERTS, head_dim=4, sliding_window=4),
    ),
    _text("LlamaBackbone", _decoder(models.LlamaBackbone)),
    _text(
        "Llama3Backbone",
        _decoder(
            models.Llama3Backbone,
            rope_frequency_adjustment_factor=8.0,
            rope_low_freq_factor=1.0,
            rope_high_freq_factor=4.0,
            rope_pretraining_sequence_length=16,
        ),
    ),
    _text("MistralBackbone", _decoder(models.MistralBackbone, sliding_window=4)),
    _text("MixtralBackbone", _decoder(models.MixtralBackbone, **_EXPERTS, sliding_window=4)),
    _text("Phi3Backbone", _decoder(models.Phi3Backbone)),
    _text(
        "Phi3Backbone[su]",
        _decoder(
            models.Phi3Backbone,
            max_sequence_length=16,
            pretraining_sequence_length=8,
            rope_scaling_type="su",
            rope_scaling_short_factor=[1.0, 1.5],
            rope_scaling_long_factor=[2.0, 2.5],
        ),
    ),
    _text(
        "QwenBackbone",
        _decoder(models.QwenBackbone, use_sliding_window_attention=True, sliding_window_size=4),
    ),
    _text("Qwen3Backbone", _decoder(models.Qwen3Backbone, head_dim=4, sliding_window_size=None)),
    _text(
        "QwenMoeBackbone",
        _decoder(
            models.QwenMoeBackbone,
            **_EXPERTS,
            moe_intermediate_dim=8,
            shared_expert_intermediate_dim=8,
        ),
    ),
    _text(
        "Qwen3MoeBackbone",
        _decoder(models.Qwen3MoeBackbone, **_EXPERTS, head_dim=4, moe_intermediate_dim=8),
    ),
    _text("Qwen3_5Backbone", _decoder(models.Qwen3_5Backbone, **_LINEAR_ATTENTION)),
    _text(
        "Qwen3_5MoeBackbone",
        partial(
            models.Qwen3_5MoeBackbone,
            **{k: v for k, v in _DECODER.items() if k != "intermediate_dim"},
            **_EXPERTS,
            **_LINEAR_ATTENTION,
            moe_intermediate_dim=8,
            shared_expert_intermediate_size=8,
        ),
    ),
    _text(
        "RWKV7Backbone",
        partial(
            models.RWKV7Backbone,
            hidden_size=16,
            head_size=8,
            num_layers=2,
            vocabulary_size=VOCABULARY_SIZE,
            intermediate_dim=32,
            gate_lora=4,
            mv_lora=4,
            aaa_lora=4,
            decay_lora=4,
        ),
        partial(tokens, length=16),
    ),
    _text(
        "SmolLM3Backbone",
        partial(
            models.SmolLM3Backbone,
            vocabulary_size=VOCABULARY_SIZE,
            hidden_dim=16,
            intermediate_dim=32,
            num_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            attention_bias=False,
            attention_dropout=0.1,
            rope_layer_enabled_list=[True, False],
            layer_types=["full_attention", "full_attention"],
            mlp_bias=False,
            layer_norm_epsilon=1e-6,
            max_position_embeddings=16,
            rope_theta=10000.0,
            partial_rotary_factor=1.0,
        ),
    ),
)
