"""Task models of keras-hub on tiny backbones, without preprocessors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import keras_hub
import numpy as np

from tests.corpus.architecture import Architecture
from tests.corpus.architectures import keras_hub_dense, keras_hub_sound, keras_hub_text
from tests.corpus.architectures.keras_hub_dense import sam_prompts
from tests.corpus.architectures.keras_hub_sound import waves
from tests.corpus.architectures.keras_hub_text import (
    gemma2,
    segmented,
    tokens,
    two_sided_tokens,
    without_mask,
)
from tests.corpus.architectures.keras_hub_vision import images

__all__ = ["ARCHITECTURES"]

models = keras_hub.models

_BACKBONES: dict[str, Callable[[], keras.Model]] = {
    entry.name.split("/")[1]: entry.build
    for module in (keras_hub_text, keras_hub_dense, keras_hub_sound)
    for entry in module.ARCHITECTURES
} | {"GemmaBackbone[v2]": gemma2}


def _task(task: Any, backbone: str, **kwargs: Any) -> keras.Model:
    return task(backbone=_BACKBONES[backbone](), preprocessor=None, **kwargs)


def _masked(batch: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return batch() | {"mask_positions": np.array([[1, 3], [0, 2]], "int32")}


def _entry(task: str, backbone: str, batch: Any, **kwargs: Any) -> Architecture:
    build = partial(_task, getattr(models, task), backbone, **kwargs)
    return Architecture(f"keras_hub/{task}", build, batch)


ARCHITECTURES: tuple[Architecture, ...] = (
    _entry("BertTextClassifier", "BertBackbone", segmented, num_classes=3),
    _entry("BertMaskedLM", "BertBackbone", partial(_masked, segmented)),
    _entry("DebertaV3TextClassifier", "DebertaV3Backbone", tokens, num_classes=3),
    _entry("ESMMaskedPLM", "ESMBackbone", partial(_masked, without_mask)),
    _entry(
        "FNetTextClassifier", "FNetBackbone", partial(without_mask, "segment_ids"), num_classes=3
    ),
    _entry("RoformerV2TextClassifier", "RoformerV2Backbone", segmented, num_classes=3),
    _entry("GemmaCausalLM", "GemmaBackbone[v2]", tokens),
    _entry("MixtralCausalLM", "MixtralBackbone", tokens),
    _entry("BartSeq2SeqLM", "BartBackbone", two_sided_tokens),
    _entry("T5GemmaSeq2SeqLM", "T5GemmaBackbone", two_sided_tokens),
    _entry("MoonshineAudioToText", "MoonshineBackbone", waves),
    _entry("DeepLabV3ImageSegmenter", "DeepLabV3Backbone", partial(images, 64), num_classes=3),
    _entry("SAMImageSegmenter", "SAMBackbone", sam_prompts),
    _entry("RetinaNetObjectDetector", "RetinaNetBackbone", partial(images, 64), num_classes=3),
    _entry(
        "DFineObjectDetector",
        "DFineBackbone",
        partial(images, 64),
        num_classes=4,
    ),
)
