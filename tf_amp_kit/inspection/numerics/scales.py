"""Which loss scales lose nothing of the gradients that were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tf_amp_kit.formats import format_of
from tf_amp_kit.inspection.numerics.statistics import TensorStatistics
from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings

__all__ = ["ScaleAdvice", "advise_scale"]

# Gradients of later batches are larger at times: three powers of two below the
# largest finite value leave room for eight times as much.
_HEADROOM: Final = 3

# Where something is lost in any case, this share of the elements is no loss.
_FEW: Final = 1e-4

# Beyond what any float32 gradient and any scale can need.
_MAX_SHIFT: Final = 300


@dataclass(frozen=True)
class ScaleAdvice:
    """What loss scales do to the gradients that were measured.

    Scales are the measured one times powers of two.

    Attributes:
        recommended: The scale to start from: within the range that loses nothing, if
            there is one, with room for gradients of eight times the size if that
            goes, or at the cost of 1 of 10,000 elements; never outside the default
            bounds of `make_loss_scale_optimizer`.
        lowest: The smallest scale at which no non-zero element becomes zero; None
            if there is no gradient.
        highest: The largest scale at which no element overflows; None likewise. Where
            elements are infinite at the measured scale, at most half of that.
        underflow_fraction: The share of non-zero elements that become zero at the
            recommended scale, 0 to 1.
        unscaled_underflow_fraction: The same without scaling: at scale 1, or below 2 if
            the measured scale was no power of two.
    """

    recommended: float
    lowest: float | None
    highest: float | None
    underflow_fraction: float
    unscaled_underflow_fraction: float

    @property
    def serves_both_ends(self) -> bool:
        """Whether there is a scale at which nothing vanishes and nothing overflows."""
        return self.lowest is None or self.highest is None or self.lowest <= self.highest

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return {**asdict(self), "serves_both_ends": self.serves_both_ends}


def advise_scale(
    gradients: Sequence[TensorStatistics], precision: str, measured_at: float
) -> ScaleAdvice:
    """Finds the scales that lose nothing, and one to start from.

    Args:
        gradients: The statistics of all gradients, at the scale of the run.
        precision: `"float16"` or `"bfloat16"`.
        measured_at: That scale.

    Returns:
        The advice; for no gradients, or only zeros, scale 1.

    Example:

    >>> import numpy as np
    >>> from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter
    >>> counter = StatisticsCounter("float16")
    >>> counter.add(np.array([2.0**-30, 1.0], np.float32))
    >>> advice = advise_scale([counter.freeze()], "float16", measured_at=1.0)
    >>> advice.lowest, advice.highest, advice.recommended
    (64.0, 32768.0, 4096.0)
    """
    known = [one for one in gradients if one.num_nonzero]
    if not known:
        return ScaleAdvice(1.0, None, None, 0.0, 0.0)
    smallest = min(one.smallest_nonzero for one in known)
    largest = max(one.largest for one in known)
    limits = format_of(precision)
    lowest = _first(lambda shift: math.ldexp(smallest, shift) > limits.zero_limit)
    highest = _first(lambda shift: math.ldexp(largest, shift) >= limits.overflow_limit) - 1
    if any(one.num_infinite for one in gradients):
        highest = min(highest, -1)  # how much lower it has to be, nobody knows
    roomy = math.floor(math.log2(format_of(precision).largest / largest)) - _HEADROOM
    roomy = min(roomy, highest)
    shift = min(max(roomy, lowest), highest)
    if lowest > highest and _underflow_fraction(known, precision, roomy) <= _FEW:
        shift = roomy  # a few elements more do not pay for a step that is skipped
    unscaled = -math.floor(math.log2(measured_at))
    # Whole powers of two away from the measured scale, and within the bounds.
    bounds = [math.log2(bound / measured_at) for bound in ScaleSettings().bounds]
    shift = min(max(shift, math.ceil(bounds[0])), math.floor(bounds[1]))
    if unscaled >= lowest and math.ldexp(measured_at, unscaled) == 1.0 and unscaled <= highest:
        shift = unscaled  # nothing is lost without scaling either
    return ScaleAdvice(
        recommended=math.ldexp(measured_at, shift),
        lowest=math.ldexp(measured_at, lowest),
        highest=math.ldexp(measured_at, highest),
        underflow_fraction=_underflow_fraction(known, precision, shift),
        unscaled_underflow_fraction=_underflow_fraction(known, precision, unscaled),
    )


def _first(holds: Any) -> int:
    return next(shift for shift in range(-_MAX_SHIFT, _MAX_SHIFT + 1) if holds(shift))


def _underflow_fraction(gradients: Iterable[TensorStatistics], precision: str, shift: int) -> float:
    judgements = [one.judge(precision, shift) for one in gradients]
    nonzero = sum(one.num_nonzero for one in judgements)
    return sum(one.num_underflow for one in judgements) / nonzero if nonzero else 0.0
