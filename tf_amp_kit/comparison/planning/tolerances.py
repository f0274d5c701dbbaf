"""How far half precision may be from float32 before anything is pinned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

from tf_amp_kit.comparison.planning.record.parts import METRICS, BatchDifference
from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.formats import format_of

__all__ = ["checked_metric", "checked_tolerance", "default_tolerance", "rounding_error"]

#: Twice the largest output error that was measured on a CNN, a transformer, an LSTM, a
#: U-Net and MobileNetV2 with every layer in half precision.
_DEFAULTS: Final[Mapping[str, float]] = {"float16": 2e-3, "bfloat16": 2e-2}

# What differs by less than this share of what batches differ by teaches the same.
_SHARE_OF_BATCHES: Final = 0.1

# An error this many times what float32 itself rounds is not half precision's.
_NOISE_FACTOR: Final = 10.0


def checked_metric(metric: Any) -> str:
    """Returns a metric, or raises if it is unknown.

    Raises:
        PrecisionError: If it is.
    """
    if metric not in METRICS:
        raise PrecisionError(f"Unknown metric. Expected one of {METRICS}. Received: {metric!r}.")
    return str(metric)


def checked_tolerance(tolerance: Any) -> float:
    """Returns a tolerance as a float, or raises if it is none.

    Raises:
        PrecisionError: If it is no positive finite number.
    """
    is_number = isinstance(tolerance, Real) and not isinstance(tolerance, bool)
    if not is_number or not 0 < float(tolerance) < math.inf:
        raise PrecisionError(
            "Expected a relative error above 0, 0.001 for example. "
            f"Received: tolerance={tolerance!r}."
        )
    return float(tolerance)


def default_tolerance(
    metric: str, half: str, noise: float, between_batches: BatchDifference | None
) -> float:
    """Returns the tolerance for a metric where nobody gave one.

    Args:
        metric: One of `METRICS`.
        half: The half format.
        noise: How far the outputs move if the inputs move by a float32 rounding.
        between_batches: How much two batches differ in float32.

    Returns:
        For outputs, twice what ordinary models were measured to have, or ten times the
        noise if that is more; for the loss and the gradients in addition no less than a
        tenth of the difference between two batches.
    """
    usual = max(_DEFAULTS[half], _NOISE_FACTOR * noise)
    if metric == "output" or between_batches is None:
        return usual
    difference = getattr(between_batches, metric)
    return max(usual, _SHARE_OF_BATCHES * difference) if math.isfinite(difference) else usual


def rounding_error(half: str) -> float:
    """Returns the relative error of rounding once, as a root mean square.

    For mantissas m spread evenly on a logarithmic scale in [1, 2), the error of rounding
    to steps of e is e / sqrt(12) at each m: the mean of its square over m^2 is
    e^2 / 12 * 3 / (8 ln 2).

    Example:

    >>> round(rounding_error("bfloat16"), 6)
    0.001659
    """
    step = format_of(half).epsilon
    return step * math.sqrt(3 / (8 * math.log(2)) / 12)
