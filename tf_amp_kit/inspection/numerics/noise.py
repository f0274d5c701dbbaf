"""Which gradients are zero but for rounding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tf_amp_kit.inspection.numerics.statistics import TensorStatistics

__all__ = ["NOISE", "are_idle"]

#: A gradient this much smaller than the others is zero but for float32's own rounding,
#: such as that of an attention's key bias: any relative error of it says nothing.
NOISE: Final = 1e-5


def are_idle(gradients: Sequence[TensorStatistics]) -> list[bool]:
    """Tells of each weight's gradient whether it is zero but for rounding.

    Args:
        gradients: The statistics of all weights' gradients of a model.

    Example:

    >>> import numpy as np
    >>> from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter
    >>> counters = StatisticsCounter("float16"), StatisticsCounter("float16")
    >>> counters[0].add(np.array([1.0, -2.0]))
    >>> counters[1].add(np.array([1e-9]))
    >>> are_idle([counter.freeze() for counter in counters])
    [False, True]
    """
    counts = [one.num_elements - one.num_nan - one.num_infinite for one in gradients]
    known = [(one.rms, count) for one, count in zip(gradients, counts, strict=True) if count]
    total = sum(count for _, count in known)
    # By way of the largest: squares of small numbers vanish.
    largest = max((rms for rms, _ in known), default=0.0)
    if not largest:
        return [False] * len(gradients)
    mean = sum((rms / largest) ** 2 * count for rms, count in known) / total
    limit = NOISE * largest * math.sqrt(mean)
    return [bool(count) and one.rms <= limit for one, count in zip(gradients, counts, strict=True)]
