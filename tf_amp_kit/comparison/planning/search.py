"""The search for the fewest pins: guess by prediction, run it, and drop what is needless."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tf_amp_kit.comparison.planning.units import topmost

__all__ = ["NUM_SPARE_VALIDATIONS", "Outcome", "Search"]

#: Runs that a search may take beside one per pin.
NUM_SPARE_VALIDATIONS: Final = 7

# So many pins are all tried one by one: of more, only those that may be needless.
_NUM_ALL_TRIED: Final = 8

# How far beyond the target a prediction may be for a run to be worth it.
_DOUBT: Final = 1.15


class Outcome(NamedTuple):
    """What a run with some pins gave.

    Attributes:
        pins: What was pinned, with what the pins had to be replaced by.
        error: The measured error; infinite for NaN or Inf.
        culprits: The units where NaN or Inf began.
    """

    pins: tuple[str, ...]
    error: float
    culprits: tuple[str, ...] = ()


@dataclass
class Search:
    """Finds a small set of pins whose measured error is within a target.

    Args:
        order: Units, those that are worth most in float32 first.
        predict: Predicts the error with some pins.
        run: Runs the model with some pins, and measures.
        target: The largest error that is allowed.
        max_validations: How many runs there may be; None for 7 and one per pin.
        first: What is known of the model without pins.
    """

    order: Sequence[str]
    predict: Callable[[Collection[str]], float]
    run: Callable[[Sequence[str]], Outcome]
    target: float
    first: Outcome
    max_validations: int | None = None
    #: What was measured, by the pins that were asked for.
    known: dict[frozenset[str], Outcome] = field(default_factory=dict)
    _forced: list[str] = field(default_factory=list)
    _ratios: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known[frozenset()] = self.first
        self._forced = list(self.first.culprits)

    @property
    def num_validations(self) -> int:
        """How many choices of pins were run, that without pins included."""
        return len(self.known)

    def find(self) -> Outcome:
        """Returns the smallest set of pins that was found, or the best if none will do."""
        if self.first.error <= self.target:
            return self.first
        found = self._shortest_prefix()
        return self._without_needless(found) if found.error <= self.target else found

    def predicted_length(self) -> int:
        """Returns how many units of the order are predicted to do."""
        return self._guess(0, len(self.order)) or 0

    def prefix(self, length: int) -> tuple[str, ...]:
        """Returns the pins that the first units of the order come to."""
        return topmost([*self._forced, *self.order[:length]])

    def extend(self, pins: Sequence[str], culprits: Sequence[str] = ()) -> Outcome | None:
        """Runs some pins and more: culprits, or the next one of the order.

        Returns:
            What that gave; None if there are no more, or no run is left.
        """
        more = [path for path in culprits or self.order if topmost([*pins, path]) != tuple(pins)]
        added = more if culprits else more[:1]
        return self._tried(topmost([*pins, *added])) if added else None

    def without(self, pins: Sequence[str], path: str) -> Outcome | None:
        """Returns what was measured with one pin less, if it was."""
        return self.known.get(frozenset(pins) - {path})

    def _shortest_prefix(self) -> Outcome:
        best = self.first
        low, high, stride = (-1 if self._forced else 0), len(self.order), 1
        length = self._guess(low, high)
        while length is not None:
            outcome = self._tried(self.prefix(length))
            if outcome is None:
                return best
            if not math.isfinite(outcome.error) and self._blame(outcome):
                continue
            if outcome.error <= self.target:
                best, high = outcome, length
                length = self._guess(low, high - 1)
                continue
            best = min(best, outcome, key=lambda one: one.error)
            low, stride = length, 2 * stride
            next_one = self._guess(min(low + stride - 1, high - 1), high)
            is_found = best.error <= self.target
            length = None if low >= high - is_found else next_one
        return best

    def _guess(self, low: int, high: int) -> int | None:
        """Returns the shortest prefix above one length that is predicted to do.

        The last one if none is; None if there is none left that may do.
        """
        for length in range(low + 1, high + 1):
            if self._expected(self.prefix(length)) <= self.target:
                return length
        return high if high == len(self.order) and high > low else None

    def _expected(self, pins: Collection[str]) -> float:
        """Corrects a prediction by what the runs so far were off, as far as they agree.

        One more run that was not off at all is taken into the geometric mean: each has
        roundings of its own.
        """
        mean = math.prod(self._ratios) ** (1 / (len(self._ratios) + 1))
        return self.predict(pins) * mean

    def _tried(self, pins: Sequence[str]) -> Outcome | None:
        key = frozenset(pins)
        if key not in self.known:
            if self.num_validations >= self._limit(len(key)):
                return None
            outcome = self.known[key] = self.run(pins)
            predicted = self.predict(outcome.pins)
            if 0 < predicted < math.inf and 0 < outcome.error < math.inf:
                self._ratios.append(outcome.error / predicted)
        return self.known[key]

    def _limit(self, num_pins: int) -> int:
        if self.max_validations is not None:
            return self.max_validations
        return NUM_SPARE_VALIDATIONS + num_pins

    def _blame(self, outcome: Outcome) -> bool:
        """Pins from now on what made NaN or Inf; tells whether that is news."""
        before, self._forced = self._forced, list(topmost([*self._forced, *outcome.culprits]))
        return before != self._forced

    def _without_needless(self, found: Outcome) -> Outcome:
        """Drops pins one at a time, those first that are predicted to do least."""
        kept: list[str] = []
        while candidates := [path for path in found.pins if path not in kept]:
            expected = {path: self._expected(_less(found.pins, path)) for path in candidates}
            path = min(candidates, key=expected.__getitem__)
            is_hopeless = expected[path] > _DOUBT * self.target
            if is_hopeless and len(found.pins) > _NUM_ALL_TRIED:
                break
            outcome = self._tried(_less(found.pins, path))
            if outcome is None:
                break
            if outcome.error <= self.target:
                found = outcome
            else:
                kept.append(path)
        return found


def _less(pins: Sequence[str], path: str) -> tuple[str, ...]:
    return tuple(one for one in pins if one != path)
