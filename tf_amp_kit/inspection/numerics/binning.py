"""Counting float32 patterns into bins, one per power of two."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.inspection.numerics.chunks import scratch
from tf_amp_kit.inspection.numerics.exponents import ExponentBin
from tf_amp_kit.inspection.numerics.patterns import (
    FRACTION,
    FRACTION_BITS,
    HIGHEST_EXPONENT,
    LOWEST_EXPONENT,
    RUNS,
    SMALLEST_NORMAL,
)

__all__ = ["BinCounter"]

Bits = NDArray[np.uint32]

_NUM_BINS: Final = HIGHEST_EXPONENT - LOWEST_EXPONENT + 1
# Biased exponents are 1 to 254 for normal values, which are in the last bins.
_NUM_NORMAL: Final = 2 * HIGHEST_EXPONENT
_OFFSET: Final = _NUM_BINS - _NUM_NORMAL - 1
_NUM_LEVELS: Final = 1 + len(RUNS)

# Rare patterns wait until there are so many arrays or elements of them: to sort
# them out costs twenty calls, and there are some in nearly every chunk.
_MOST_ARRAYS: Final = 64
_MOST_ELEMENTS: Final = 4096

_ONE: Final = np.uint32(1)
_SHIFT: Final = np.uint32(FRACTION_BITS)
_FRACTION: Final = np.uint32(FRACTION)
_NORMAL: Final = np.uint32(SMALLEST_NORMAL)
_RUN_EDGES: Final = np.array(
    [FRACTION + 1 - (1 << (FRACTION_BITS - run)) for run in RUNS], np.uint32
)
# From the first digits of a rare mantissa to its row: zero, or so many ones. The
# search for it among the edges would take ten times as long.
_LONGEST_RUN: Final = RUNS[-1]
_TO_RUN: Final = np.uint32(FRACTION_BITS - _LONGEST_RUN)
_LEVEL_STARTS: Final = _NUM_BINS * np.searchsorted(
    _RUN_EDGES >> _TO_RUN, np.arange(1 << _LONGEST_RUN), side="right"
)
# One less, as patterns are when one is taken away to send zeros to the far end.
_RARE: Final = _RUN_EDGES[0] - _ONE


class BinCounter:
    """Counts finite magnitudes per power of two, and the rare ones at an edge.

    Example:

    >>> counter = BinCounter()
    >>> counter.add(np.array([1.0, 1.5, 0.0], np.float32).view(np.uint32)) == 0x3F800000
    True
    >>> counter.num_zeros, counter.freeze()[0].num_powers
    (1, 1)
    """

    def __init__(self) -> None:
        self.num_zeros = 0
        self._num_elements = np.zeros(_NUM_BINS, np.int64)
        # Exact powers of two first, then mantissas by the ones that they start with.
        self._num_rare = np.zeros(_NUM_LEVELS * _NUM_BINS, np.int64)
        self._waiting: list[Bits] = []
        self._num_waiting = 0

    def add(self, bits: Bits) -> int:
        """Counts the patterns of finite magnitudes, at least one, at most a chunk.

        Args:
            bits: Patterns without their sign bits.

        Returns:
            The smallest pattern that is not zero; 0 if there is none.
        """
        size = bits.size
        lowered, keys = scratch.first[:size], scratch.keys[:size]
        np.subtract(bits, _ONE, out=lowered)
        # Zero wraps to the largest integer, whose successor wraps back.
        smallest = int(lowered.min() + _ONE) if size else 0
        if not smallest:
            self.num_zeros += size
            return 0
        biased = np.right_shift(bits, _SHIFT, out=scratch.second[:size])
        np.copyto(keys, biased)
        counts = np.bincount(keys, minlength=_NUM_NORMAL + 1)
        self._num_elements[_OFFSET + 1 :] += counts[1:]
        has_tiny = bool(counts[0])
        if has_tiny:
            self._add_tiny(bits, int(counts[0]), smallest)
        self._add_rare(bits, lowered, has_tiny)
        return smallest

    def merge(self, other: BinCounter) -> None:
        """Adds another counter's counts, which stay as they are."""
        other._sort_out()
        self.num_zeros += other.num_zeros
        self._num_elements += other._num_elements
        self._num_rare += other._num_rare

    def freeze(self) -> tuple[ExponentBin, ...]:
        """Gives the bins that are not empty, smallest exponent first."""
        self._sort_out()
        rare = self._num_rare.reshape(_NUM_LEVELS, _NUM_BINS)
        # A mantissa that starts with eleven ones starts with seven, too.
        runs = np.cumsum(rare[:0:-1], axis=0)[::-1]
        return tuple(
            ExponentBin(
                exponent=int(index) + LOWEST_EXPONENT,
                num_elements=int(self._num_elements[index]),
                num_powers=int(rare[0, index]),
                num_runs=tuple(runs[:, index].tolist()),
            )
            for index in np.flatnonzero(self._num_elements)
        )

    def _add_tiny(self, bits: Bits, num_tiny: int, smallest: int) -> None:
        """Counts zeros, and float32's subnormals, which have no exponent of their own."""
        if smallest >= SMALLEST_NORMAL:
            self.num_zeros += num_tiny
            return
        subnormal = bits[(bits < _NORMAL) & (bits > 0)]
        self.num_zeros += num_tiny - subnormal.size
        # An integer's float64 has the digits that the subnormal lacks.
        mantissas, exponents = np.frexp(subnormal.astype(np.float64))
        indices = exponents.astype(np.int64) - 1
        fractions = np.ldexp(mantissas, FRACTION_BITS + 1).astype(np.uint32) & _FRACTION
        self._num_elements += np.bincount(indices, minlength=_NUM_BINS)
        rare = (fractions == 0) | (fractions >= _RUN_EDGES[0])
        self._count_rare(indices[rare], fractions[rare])

    def _add_rare(self, bits: Bits, lowered: Bits, has_tiny: bool) -> None:
        mask = scratch.mask[: bits.size]
        # Mantissas of zero went to the far end, next to those that start with ones.
        np.bitwise_and(lowered, _FRACTION, out=lowered)
        np.greater_equal(lowered, _RARE, out=mask)
        if has_tiny:
            mask &= bits >= _NORMAL
        rare = bits[mask]
        if rare.size:
            self._waiting.append(rare)
            self._num_waiting += rare.size
            if self._num_waiting > _MOST_ELEMENTS or len(self._waiting) > _MOST_ARRAYS:
                self._sort_out()

    def _sort_out(self) -> None:
        if self._waiting:
            rare = np.concatenate(self._waiting)
            self._waiting, self._num_waiting = [], 0
            indices = (rare >> _SHIFT).astype(np.int64) + _OFFSET
            self._count_rare(indices, rare & _FRACTION)

    def _count_rare(self, indices: NDArray[np.int64], fractions: Bits) -> None:
        keys = _LEVEL_STARTS.take(fractions >> _TO_RUN) + indices
        self._num_rare += np.bincount(keys, minlength=self._num_rare.size)
