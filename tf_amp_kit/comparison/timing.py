"""How long something takes, as quartiles of interleaved runs."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np

__all__ = ["InterleavedTimes", "Quartiles", "StepTimes", "time_interleaved"]

# The first run traces, the next still settles caches and memory.
_NUM_WARM_UPS: Final = 2
# Of fewer, quartiles say nothing.
_FEWEST_ROUNDS: Final = 3


@dataclass(frozen=True)
class Quartiles:
    """The quartiles of some durations, in seconds."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Quartiles:
        """Takes the quartiles of durations, between two of them in proportion.

        Args:
            values: Seconds, at least one.

        Raises:
            ValueError: If there are none.

        Example:

        >>> Quartiles.of([4.0, 1.0, 3.0, 2.0, 5.0])
        Quartiles(low=2.0, median=3.0, high=4.0)
        """
        durations = list(values)
        if not durations:
            raise ValueError("Quartiles need at least one duration. Received: none.")
        return cls(*(float(one) for one in np.quantile(durations, (0.25, 0.5, 0.75))))


@dataclass(frozen=True)
class StepTimes:
    """How long a model runs in float32, in half precision, and with the pins of a plan.

    Attributes:
        what: What was timed: `"forward and backward pass"`, or `"forward pass"` for a
            model without a loss.
        num_rounds: How many rounds of interleaved runs were timed.
        float32: The seconds of one run in float32.
        half: Those with every layer in half precision.
        planned: Those with the plan's pins; the same as `half` if there are none.
    """

    what: str
    num_rounds: int
    float32: Quartiles
    half: Quartiles
    planned: Quartiles

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return asdict(self)


class InterleavedTimes(NamedTuple):
    """What `time_interleaved` measured.

    Attributes:
        quartiles: The seconds of each run, by name.
        num_rounds: How many rounds were timed.
    """

    quartiles: dict[str, Quartiles]
    num_rounds: int


def time_interleaved(
    runs: Mapping[str, Callable[[], object]],
    *,
    max_rounds: int,
    budget_seconds: float,
    num_warm_ups: int = _NUM_WARM_UPS,
    clock: Callable[[], float] = time.perf_counter,
) -> InterleavedTimes:
    """Times alternatives against each other, round after round, each in another order.

    What slows the machine down for a while then hits all of them alike, and what one
    run leaves in caches is met by each of the others in turn. Garbage is collected
    before, and not meanwhile.

    Args:
        runs: Functions by name. Each has to wait for its own results: what runs on
            after it returned would be counted to the next one.
        max_rounds: The largest number of rounds, each function once.
        budget_seconds: No round starts later than this, after the warm-up; at least
            three rounds are run, if `max_rounds` allows.
        num_warm_ups: How many rounds are run before, and not timed.
        clock: Tells the seconds.

    Returns:
        An `InterleavedTimes`.

    Raises:
        ValueError: If `max_rounds` is less than 1.

    Example:

    >>> ticks = iter([0.0, 1.0, 3.0])
    >>> runs = {"once": lambda: None}
    >>> time_interleaved(
    ...     runs, max_rounds=1, budget_seconds=9, clock=lambda: next(ticks)
    ... ).quartiles["once"].median
    2.0
    """
    if max_rounds < 1:
        raise ValueError(f"Expected at least one round. Received: max_rounds={max_rounds!r}.")
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    orders = itertools.cycle(itertools.permutations(runs))
    num_rounds = 0
    with _without_collecting():
        for order in itertools.islice(orders, num_warm_ups):
            for name in order:
                runs[name]()
        start = clock()
        for order in itertools.islice(orders, max_rounds):
            if num_rounds >= _FEWEST_ROUNDS and clock() - start >= budget_seconds:
                break
            for name in order:
                before = clock()
                runs[name]()
                seconds[name].append(clock() - before)
            num_rounds += 1
    quartiles = {name: Quartiles.of(values) for name, values in seconds.items()}
    return InterleavedTimes(quartiles, num_rounds)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Keeps garbage from being collected, if that is not off already."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
