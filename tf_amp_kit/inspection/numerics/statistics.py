"""Statistics of the arrays of one tensor, and the frozen record of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tf_amp_kit.errors import InputsError
from tf_amp_kit.formats import is_float
from tf_amp_kit.inspection.numerics.binning import BinCounter
from tf_amp_kit.inspection.numerics.chunks import float32_chunks, scratch
from tf_amp_kit.inspection.numerics.exponents import ExponentBin, Judgement, judge
from tf_amp_kit.inspection.numerics.patterns import (
    INFINITY,
    MAGNITUDE,
    edges_of,
    parse_half,
    to_float,
)
from tf_amp_kit.inspection.numerics.rounding import square_errors, widen

__all__ = ["StatisticsCounter", "TensorStatistics"]

_MAGNITUDE: Final = np.uint32(MAGNITUDE)


@dataclass(frozen=True)
class TensorStatistics:
    """What is known of a tensor without its elements.

    Attributes:
        precision: The half format of the rounding error.
        num_elements: All elements.
        num_zeros: Zeros of either sign.
        num_nan: NaNs.
        num_infinite: Infinities of either sign.
        minimum: The smallest finite element; NaN if there is none.
        maximum: The largest finite element; NaN if there is none.
        smallest_nonzero: The smallest magnitude of a finite element that is not
            zero; NaN if there is none.
        largest: The largest such magnitude; NaN if there is none.
        mean: The mean of the finite elements; NaN if there are none.
        rms: The root mean square of the finite elements; NaN if there are none.
        rounding_error: The RMS of (rounded - value) over the RMS of value, of the
            elements that stay finite in the format; 0 if these are all zero. What
            vanishes counts with its whole size, so it is 1 if all vanish.
        bins: The finite non-zero elements per power of two.

    Example:

    >>> counter = StatisticsCounter("float16")
    >>> counter.add(np.array([0.0, -3.0, 1e-9, np.inf], np.float32))
    >>> record = counter.freeze()
    >>> record.minimum, record.num_zeros, record.judge("float16").num_underflow
    (-3.0, 1, 1)
    """

    precision: str
    num_elements: int
    num_zeros: int
    num_nan: int
    num_infinite: int
    minimum: float
    maximum: float
    smallest_nonzero: float
    largest: float
    mean: float
    rms: float
    rounding_error: float
    bins: tuple[ExponentBin, ...]

    @property
    def num_nonzero(self) -> int:
        """Finite elements that are not zero."""
        return self.num_elements - self.num_zeros - self.num_nan - self.num_infinite

    @property
    def exponent_counts(self) -> dict[int, int]:
        """Elements with `2^e <= |x| < 2^(e + 1)` for each e that has any, in order."""
        return {item.exponent: item.num_elements for item in self.bins}

    def judge(self, precision: str, shift: int = 0) -> Judgement:
        """Tells what a half format does to the values times `2^shift`, exactly.

        Args:
            precision: `"float16"` or `"bfloat16"`; not only the one of the record.
            shift: The power of two, that of a loss scale for example.

        Returns:
            A `Judgement`.

        Raises:
            PrecisionError: If the precision is no half format.
        """
        return judge(self.bins, self.largest, precision, shift=shift)

    def to_dict(self) -> dict[str, Any]:
        """Gives the record for JSON: None for NaN, exponents as text."""
        names = [field.name for field in fields(self) if field.name != "bins"]
        record = {name: getattr(self, name) for name in names}
        return {
            **{name: None if value != value else value for name, value in record.items()},
            "exponent_counts": {str(e): count for e, count in self.exponent_counts.items()},
        }


class StatisticsCounter:
    """Collects the statistics of a tensor from the arrays of its batches.

    Counts and extremes do not depend on how elements are split into arrays; sums
    do by a few units in float64's last place. No thread may add to a counter
    while another one does; different counters do not disturb each other.

    Args:
        precision: `"float16"` or `"bfloat16"`, for the rounding error.

    Raises:
        PrecisionError: If the precision is no half format.

    Example:

    >>> counter = StatisticsCounter("bfloat16")
    >>> counter.add(np.ones((2, 3), np.float32))
    >>> counter.add(np.full(2, 5.0, np.float32))
    >>> counter.freeze().mean
    2.0
    """

    def __init__(self, precision: str) -> None:
        self.precision = parse_half(precision)
        self._num_elements = 0
        self._num_nan = 0
        self._num_infinite = 0
        # Patterns of magnitudes, negative for negative values: they sort as values do.
        self._minimum = INFINITY
        self._maximum = -INFINITY
        self._smallest = INFINITY
        self._sum = _Sum()
        self._squares = _Sum()
        self._kept_squares = _Sum()
        self._error_squares = _Sum()
        self._bins = BinCounter()

    def add(self, values: ArrayLike) -> None:
        """Takes the elements of one array.

        Args:
            values: A float32 array of any shape and layout. Other floats are cast to
                float32 first: a float64 beyond its range counts as infinite.

        Raises:
            InputsError: If these are no floats.
        """
        array = np.asarray(values)
        if not is_float(array.dtype.name):
            raise InputsError(
                "Statistics are of float arrays only; leave integers out, or cast them. "
                f"Received: an array of dtype {array.dtype.name}."
            )
        with np.errstate(all="ignore"):
            for chunk in float32_chunks(array):
                self._add_chunk(chunk)

    def merge(self, other: StatisticsCounter) -> None:
        """Adds what another counter has seen, which itself stays as it is.

        Args:
            other: A counter of the same precision.

        Raises:
            ValueError: If it is of another precision.
        """
        if other.precision != self.precision:
            raise ValueError(
                "Only counters of one precision can be merged. "
                f"Received: {other.precision!r} to be merged into {self.precision!r}."
            )
        self._num_elements += other._num_elements
        self._num_nan += other._num_nan
        self._num_infinite += other._num_infinite
        self._minimum = min(self._minimum, other._minimum)
        self._maximum = max(self._maximum, other._maximum)
        self._smallest = min(self._smallest, other._smallest)
        self._sum.merge(other._sum)
        self._squares.merge(other._squares)
        self._kept_squares.merge(other._kept_squares)
        self._error_squares.merge(other._error_squares)
        self._bins.merge(other._bins)

    def freeze(self) -> TensorStatistics:
        """Gives the statistics of all that was added so far."""
        num_finite = self._num_elements - self._num_nan - self._num_infinite
        has_nonzero = num_finite > self._bins.num_zeros
        largest = max(abs(self._minimum), abs(self._maximum))
        kept = self._kept_squares.total
        return TensorStatistics(
            precision=self.precision,
            num_elements=self._num_elements,
            num_zeros=self._bins.num_zeros,
            num_nan=self._num_nan,
            num_infinite=self._num_infinite,
            minimum=to_float(self._minimum) if num_finite else math.nan,
            maximum=to_float(self._maximum) if num_finite else math.nan,
            smallest_nonzero=to_float(self._smallest) if has_nonzero else math.nan,
            largest=to_float(largest) if has_nonzero else math.nan,
            mean=self._sum.total / num_finite if num_finite else math.nan,
            rms=math.sqrt(self._squares.total / num_finite) if num_finite else math.nan,
            rounding_error=math.sqrt(self._error_squares.total / kept) if kept else 0.0,
            bins=self._bins.freeze(),
        )

    def _add_chunk(self, chunk: NDArray[np.float32]) -> None:
        minimum, maximum = _extremes(chunk.view(np.uint32))
        self._num_elements += chunk.size
        if max(abs(minimum), abs(maximum)) >= INFINITY:
            finite = self._without_nonfinite(chunk)
            if finite.size:
                self._add_finite(finite, *_extremes(finite.view(np.uint32)))
        else:
            self._add_finite(chunk, minimum, maximum)

    def _without_nonfinite(self, chunk: NDArray[np.float32]) -> NDArray[np.float32]:
        bits = chunk.view(np.uint32) & _MAGNITUDE
        num_nan = int(np.count_nonzero(bits > INFINITY))
        finite = chunk[bits < INFINITY]
        self._num_nan += num_nan
        self._num_infinite += chunk.size - finite.size - num_nan
        return finite

    def _add_finite(self, chunk: NDArray[np.float32], minimum: int, maximum: int) -> None:
        self._minimum = min(self._minimum, minimum)
        self._maximum = max(self._maximum, maximum)
        bits = np.bitwise_and(chunk.view(np.uint32), _MAGNITUDE, out=scratch.bits[: chunk.size])
        smallest = self._bins.add(bits)
        if smallest:
            self._smallest = min(self._smallest, smallest)
            self._add_sums(chunk, bits, smallest, max(abs(minimum), abs(maximum)))

    def _add_sums(
        self, chunk: NDArray[np.float32], bits: NDArray[np.uint32], smallest: int, largest: int
    ) -> None:
        wide = widen(bits, chunk, smallest=smallest)
        self._sum.add(float(np.add.reduce(wide)))
        squares = _square_sum(wide)
        self._squares.add(squares)
        overflow = edges_of(self.precision).overflow_pattern
        if largest >= overflow:
            bits = bits[bits < overflow]
            squares = _square_sum(widen(bits, bits.view(np.float32), smallest=smallest))
        self._kept_squares.add(squares)
        self._error_squares.add(square_errors(bits, self.precision, smallest=smallest))


def _extremes(patterns: NDArray[np.uint32]) -> tuple[int, int]:
    """Gives minimum and maximum as patterns of magnitudes, negated for negative values.

    Read as signed integers, the patterns of negative values are negative; among
    themselves, larger patterns are larger magnitudes. Zeros are alike.
    """
    signed, unsigned = int(patterns.view(np.int32).max()), int(patterns.max())
    smallest = int(patterns.min()) if signed < 0 or unsigned <= MAGNITUDE else 0
    maximum = signed if signed >= 0 else -(smallest & MAGNITUDE)
    minimum = smallest if unsigned <= MAGNITUDE else -(unsigned & MAGNITUDE)
    return minimum, maximum


def _square_sum(wide: NDArray[np.float64]) -> float:
    np.square(wide, out=wide)
    return float(np.add.reduce(wide))


class _Sum:
    """A float64 sum that carries along what its additions round away."""

    def __init__(self) -> None:
        self._high = 0.0
        self._low = 0.0

    @property
    def total(self) -> float:
        return self._high + self._low

    def add(self, value: float) -> None:
        before, self._high = self._high, self._high + value
        added = self._high - before
        self._low += (before - (self._high - added)) + (value - added)

    def merge(self, other: _Sum) -> None:
        self.add(other._high)
        self._low += other._low
