"""Text backbones of keras-hub: encoders and sequence-to-sequence models."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras_hub
import numpy as np

from tests.corpus.architecture import Architecture

__all__ = [
    "ARCHITECTURES",
    "VOCABULARY_SIZE",
    "segmented",
    "tokens",
    "two_sided_tokens",
    "without_mask",
]

VOCABULARY_SIZE = 32
LENGTH = 8

models = keras_hub.models

_ENCODER = {
    "vocabulary_size": VOCABULARY_SIZE,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
}
_ELECTRA = {
    "vocab_size": VOCABULARY_SIZE,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "embedding_dim": 4,
    "intermediate_dim": 16,
    "max_sequence_length": LENGTH,
}
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


def _encoder(cls: Any, **kwargs: Any) -> Any:
    return partial(cls, **_ENCODER, **kwargs)


def _text(name: str, build: Any, batch: Any = tokens) -> Architecture:
    return Architecture(f"keras_hub/{name}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _text("AlbertBackbone", _encoder(models.AlbertBackbone, embedding_dim=4), segmented),
    _text("BertBackbone", _encoder(models.BertBackbone), segmented),
    _text("DebertaV3Backbone", _encoder(models.DebertaV3Backbone, bucket_size=4)),
    _text("DistilBertBackbone", _encoder(models.DistilBertBackbone)),
    _text("ElectraBackbone", partial(models.ElectraBackbone, **_ELECTRA), segmented),
    _text("ESMBackbone", _encoder(models.ESMBackbone), without_mask),
    _text(
        "ESMBackbone[absolute]",
        _encoder(
            models.ESMBackbone,
            position_embedding_type="absolute",
            max_sequence_length=LENGTH,
            use_pre_layer_norm=True,
        ),
        without_mask,
    ),
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
    _text("RobertaBackbone", _encoder(models.RobertaBackbone)),
    _text("RoformerV2Backbone", _encoder(models.RoformerV2Backbone, head_size=4), segmented),
    _text("XLMRobertaBackbone", _encoder(models.XLMRobertaBackbone)),
    _text("XLNetBackbone", _encoder(models.XLNetBackbone), segmented),
    _text("BartBackbone", _encoder(models.BartBackbone), two_sided_tokens),
    _text("T5Backbone", _encoder(models.T5Backbone), two_sided_tokens),
    _text(
        "EdRecBackbone",
        partial(
            models.EdRecBackbone,
            vocab_size=VOCABULARY_SIZE,
            num_layers_enc=2,
            num_layers_dec=2,
            hidden_dim=8,
            intermediate_dim=16,
            num_heads=2,
            dropout=0.1,
        ),
        two_sided_tokens,
    ),
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
    _text(
        "T5Gemma2Backbone",
        partial(models.T5Gemma2Backbone, VOCABULARY_SIZE, **_T5_GEMMA, sliding_window=4),
        two_sided_tokens,
    ),
)
