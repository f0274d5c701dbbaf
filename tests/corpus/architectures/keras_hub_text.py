"""Text backbones of keras-hub: encoders, sequence-to-sequence models and decoders."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras_hub
import numpy as np

from tests.corpus.architecture import Architecture

__all__ = [
    "ARCHITECTURES",
    "gemma2",
    "segmented",
    "tokens",
    "two_sided_tokens",
    "without_mask",
]

VOCABULARY_SIZE = 32
LENGTH = 8

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
_T5_GEMMA = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in {
        "hidden_dim": 16,
        "intermediate_dim": 32,
        "num_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "layer_types": ["sliding_attention", "full_attention"],
    }.items()
}


def tokens(*names: str, length: int = LENGTH) -> dict[str, Any]:
    """Make token ids and a mask that pads the second sample; add zeros for the `names`."""
    rng = np.random.default_rng(0)
    padding_mask = np.ones((2, length), "int32")
    padding_mask[1, length - 2 :] = 0
    return {
        "token_ids": rng.integers(1, VOCABULARY_SIZE, (2, length)).astype("int32"),
        "padding_mask": padding_mask,
        **{name: np.zeros((2, length), "int32") for name in names},
    }


def two_sided_tokens() -> dict[str, Any]:
    """Make the tokens of an encoder and of a decoder, in one dictionary."""
    return {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in tokens().items()
    }


segmented = partial(tokens, "segment_ids")


def without_mask(*names: str) -> dict[str, Any]:
    """Make the `tokens` of a model that finds the padding by itself, or not at all."""
    batch = tokens(*names)
    del batch["padding_mask"]
    return batch


def _plain(cls: Any, **kwargs: Any) -> Any:
    return partial(cls, **_PLAIN, **kwargs)


def _decoder(cls: Any, **kwargs: Any) -> Any:
    return partial(cls, **_DECODER, **kwargs)


# Has no entry of its own; the task GemmaCausalLM stands on it.
gemma2 = _decoder(
    models.GemmaBackbone,
    head_dim=4,
    use_post_ffw_norm=True,
    use_post_attention_norm=True,
    attention_logit_soft_cap=50.0,
    final_logit_soft_cap=30.0,
    use_sliding_window_attention=True,
    sliding_window_size=4,
)


def _text(name: str, build: Any, batch: Any = tokens) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _text("BertBackbone", _plain(models.BertBackbone), segmented),
    _text("DebertaV3Backbone", _plain(models.DebertaV3Backbone, bucket_size=4)),
    _text("ESMBackbone", _plain(models.ESMBackbone), without_mask),
    _text(
        "FNetBackbone",
        partial(
            models.FNetBackbone,
            vocabulary_size=VOCABULARY_SIZE,
            num_layers=2,
            hidden_dim=8,
            intermediate_dim=16,
        ),
        partial(without_mask, "segment_ids"),
    ),
    _text("RoformerV2Backbone", _plain(models.RoformerV2Backbone, head_size=4), segmented),
    _text("XLNetBackbone", _plain(models.XLNetBackbone), segmented),
    _text("BartBackbone", _plain(models.BartBackbone), two_sided_tokens),
    _text("T5Backbone", _plain(models.T5Backbone), two_sided_tokens),
    _text(
        "T5GemmaBackbone",
        partial(
            models.T5GemmaBackbone,
            VOCABULARY_SIZE,
            **_T5_GEMMA,
            sliding_window=4,
            attn_logit_softcapping=50.0,
            cross_attention_hidden_size=16,
        ),
        two_sided_tokens,
    ),
    _text("BloomBackbone", _plain(models.BloomBackbone)),
    _text("GPT2Backbone", _plain(models.GPT2Backbone)),
    _text("GPTNeoXBackbone", _plain(models.GPTNeoXBackbone, rotary_percentage=0.5)),
    _text(
        "GemmaBackbone",
        _decoder(models.GemmaBackbone, head_dim=4, attention_logit_soft_cap=50.0),
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
    _text("MixtralBackbone", _decoder(models.MixtralBackbone, **_EXPERTS, sliding_window=4)),
    _text("Phi3Backbone", _decoder(models.Phi3Backbone)),
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
        "Qwen3_5Backbone",
        _decoder(
            models.Qwen3_5Backbone,
            head_dim=8,
            layer_types=["linear_attention", "full_attention"],
            partial_rotary_factor=0.5,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=4,
            linear_value_head_dim=4,
            linear_conv_kernel_dim=2,
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
)
