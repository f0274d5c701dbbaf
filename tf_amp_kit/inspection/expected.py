"""Which precision a model is looked at for, where nobody says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import keras

from tf_amp_kit.formats import is_half, width
from tf_amp_kit.precision.policy import current_amp
from tf_amp_kit.tracing.records import LayerFacts

__all__ = ["computes_in", "expected_half", "expected_precision", "usual_precision"]


def expected_precision(asked: str | None, layers: Iterable[LayerFacts]) -> str:
    """Returns what was asked for, else what the process was told, else what is usual here.

    Args:
        asked: The caller's precision, parsed, or None.
        layers: The layers of the model.

    Returns:
        `"float16"`, `"bfloat16"` or `"float32"`.
    """
    return asked or _wanted() or usual_precision(layers)


def expected_half(asked: str | None, layers: Iterable[LayerFacts]) -> str:
    """Returns the half format to judge by: `expected_precision`, or what is half at all.

    Where nothing is half, float16 is the one that has something to lose at both ends.
    """
    layers = tuple(layers)
    precision = expected_precision(asked, layers)
    if is_half(precision):
        return precision
    # A backbone may be in half, and more layers behind it pinned.
    weighted = [facts.compute_dtype for facts in layers if facts.own_weight_dtypes]
    counts = Counter(dtype for dtype in weighted if is_half(dtype))
    return counts.most_common(1)[0][0] if counts else "float16"


def computes_in(half: str, layers: Iterable[LayerFacts]) -> bool:
    """Tells whether any layer with weights computes in a format."""
    return any(facts.compute_dtype == half for facts in layers if facts.own_weight_dtypes)


def _wanted() -> str | None:
    """Returns the half precision that the process was told to use, if any."""
    state = current_amp()
    if state is not None:
        return state.precision
    global_dtype = keras.config.dtype_policy().compute_dtype
    return global_dtype if is_half(global_dtype) else None


def usual_precision(layers: Iterable[LayerFacts]) -> str:
    """Returns what most layers with weights say that they compute in."""
    told = [facts for facts in layers if facts.is_model and is_half(facts.compute_dtype)]
    weighted = [facts for facts in layers if facts.own_weight_dtypes]
    counts = Counter(facts.compute_dtype for facts in weighted if width(facts.compute_dtype))
    if not counts:
        return "float32"
    most = counts.most_common(1)[0][0]
    if not any(is_half(dtype) for dtype in counts) and told:
        return told[0].compute_dtype  # a model that says half, and is not
    return most
