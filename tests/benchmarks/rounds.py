"""What the benchmarks share: interleaved rounds in one process, and quartiles."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable

import numpy as np

NUM_WARM_UPS = 10


def interleaved(
    steps: dict[str, Callable[[], float]], num_rounds: int, num_warm_ups: int = NUM_WARM_UPS
) -> dict[str, np.ndarray]:
    """Run alternatives round after round, each round in another order.

    Args:
        steps: Functions that make one step each, and return its seconds.
        num_rounds: How many rounds are kept.
        num_warm_ups: How many rounds come before those.

    Returns:
        The seconds by name; equal indices are of one round.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    orders = itertools.cycle(itertools.permutations(steps))
    gc.collect()
    gc.disable()
    try:
        for turn, order in zip(range(num_warm_ups + num_rounds), orders, strict=False):
            for name in order:
                elapsed = steps[name]()
                if turn >= num_warm_ups:
                    times[name].append(elapsed)
    finally:
        gc.enable()
    return {name: np.array(values) for name, values in times.items()}


def quartiles(values: np.ndarray, digits: int) -> str:
    """Return the median and the two other quartiles as text."""
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
