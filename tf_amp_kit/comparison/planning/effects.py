"""What the errors of units come to, each alone and many together."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.planning.units import Unit, paths_above
from tf_amp_kit.tracing.paths import is_below

__all__ = ["RANGE_HEADROOM", "Effects", "Samples", "is_near_limit"]

#: Numbers within this factor of the format's largest one are about to overflow.
RANGE_HEADROOM: Final = 8.0

Samples = NDArray[np.float64]


def is_near_limit(largest: float, limit: float) -> bool:
    """Tells whether a magnitude is about to overflow a format with this largest number."""
    return largest * RANGE_HEADROOM > limit


@dataclass(frozen=True)
class Effects:
    """Errors of units in half precision, as sampled at the outputs.

    The samples of an error are what it comes to in each sample of the data, seen through
    random sums of its outputs: the norm of the samples is that of the outputs' error.
    Errors of several units have random signs: their squares add up. What a unit rounds
    that another one has rounded before, because both run in half precision, is no error.

    Attributes:
        units: The units.
        errors: The samples of each unit that runs in half precision alone, by path.
        roundings: The part of them that comes from rounding what another unit returned,
            by the paths of both.
        nonfinite: Units that make NaN or Inf in half precision, alone, or raise.
        raising: Those of them that raise.
        unsampled: Units that could not be run beside float32.
        largest: The largest magnitude that each unit takes or returns.
        limit: The half format's largest number.
        batch_sizes: For the error of one number per batch, the loss: how many samples
            each batch has, which add up to it. Empty for other errors.
    """

    units: Sequence[Unit]
    errors: Mapping[str, Samples]
    roundings: Mapping[tuple[str, str], Samples]
    nonfinite: Collection[str]
    largest: Mapping[str, float]
    limit: float
    batch_sizes: Sequence[int] = ()
    raising: Collection[str] = ()
    unsampled: Collection[str] = ()

    def score(self, path: str) -> float:
        """Returns the error that is predicted if one unit alone runs in half precision."""
        if path in self.nonfinite:
            return math.inf
        # A layer that is called twice may take its own result.
        return math.sqrt(self._square_within(path, (path,)))

    def reason(self, path: str) -> str:
        """Tells why a unit would be pinned."""
        if path in self.raising:
            return "raises"
        if path in self.nonfinite:
            return "non-finite"
        near = is_near_limit(self.largest.get(path, 0.0), self.limit)
        return "range" if near else "error"

    def predict(self, pinned: Collection[str]) -> float:
        """Returns the error that is predicted with some units in float32, the others in half."""
        half = self.half_with(pinned)
        if any(path in half for path in self.culprits):
            return math.inf
        return math.sqrt(sum(self.share(path, half) for path in half))

    def half_with(self, pinned: Collection[str]) -> frozenset[str]:
        """Returns the units that are left in half precision."""
        pins = frozenset(pinned)
        return frozenset(path for path, around in self._around.items() if pins.isdisjoint(around))

    def share(self, path: str, half: Collection[str]) -> float:
        """Returns the square of what a unit of those in half adds to their error.

        Of a composite, what its own code adds to what the units in it do.
        """
        return max(0.0, self._square_within(path, half) - self._parts.get(path, 0.0))

    @cached_property
    def culprits(self) -> tuple[str, ...]:
        """Units that make NaN or Inf, without composites that only hold such a one."""
        return tuple(
            unit.path
            for unit in self.units
            if unit.path in self.nonfinite
            and not any(one != unit.path and is_below(one, unit.path) for one in self.nonfinite)
        )

    @cached_property
    def givers(self) -> dict[str, list[str]]:
        """From whom each unit takes something."""
        found: dict[str, list[str]] = {}
        for path, giver in self.roundings:
            found.setdefault(path, []).append(giver)
        return found

    @cached_property
    def takers(self) -> dict[str, list[str]]:
        """Who takes something from each unit."""
        found: dict[str, list[str]] = {}
        for path, giver in self.roundings:
            found.setdefault(giver, []).append(path)
        return found

    @cached_property
    def _around(self) -> dict[str, tuple[str, ...]]:
        """Each unit's path, and those that it hangs below."""
        return {unit.path: (unit.path, *paths_above(unit.path)) for unit in self.units}

    @cached_property
    def _parts(self) -> dict[str, float]:
        """The sum of the squares of what the units directly in a composite do."""
        parts: dict[str, float] = {}
        for unit in self.units:
            if unit.parent is not None:
                within = {
                    one for one in self.givers.get(unit.path, ()) if is_below(one, unit.parent)
                }
                share = self._square_within(unit.path, within)
                parts[unit.parent] = parts.get(unit.parent, 0.0) + share
        return parts

    def _square_within(self, path: str, half: Collection[str]) -> float:
        """Returns the square of a unit's error, without what others in half round before."""
        if path not in self.errors:
            return 0.0
        error = self.errors[path]
        for giver in self.givers.get(path, ()):
            if giver in half:
                error = error - self.roundings[path, giver]
        return self._square(error)

    def _square(self, samples: Samples) -> float:
        if not self.batch_sizes:
            return float(np.dot(samples, samples))
        batches = np.split(samples, np.cumsum(self.batch_sizes)[:-1])
        # Where samples cancel out by chance, other data will not.
        sizes = (max(abs(float(one.sum())), float(np.linalg.norm(one))) for one in batches)
        return float(sum(sizes)) ** 2
