"""Counts per power of two, and what a half format does to the values counted."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tf_amp_kit.formats import format_of
from tf_amp_kit.inspection.numerics.patterns import RUNS, edges_of, parse_half

__all__ = ["ExponentBin", "Judgement", "judge"]


@dataclass(frozen=True, slots=True)
class ExponentBin:
    """The elements with `2^exponent <= |x| < 2^(exponent + 1)`.

    Attributes:
        exponent: -149 to 127; float32's subnormals are in the bins below -126.
        num_elements: How many there are.
        num_powers: How many of them are exactly `2^exponent`.
        num_runs: For each number of `RUNS`, how many have a mantissa whose binary
            digits after the point start with at least so many ones.
    """

    exponent: int
    num_elements: int
    num_powers: int
    num_runs: tuple[int, ...]


@dataclass(frozen=True)
class Judgement:
    """What becomes of finite non-zero values times `2^shift` in a half format.

    Attributes:
        precision: `"float16"` or `"bfloat16"`.
        shift: The power of two that the values are multiplied by first.
        num_nonzero: Finite non-zero elements; the fractions are of these.
        num_underflow: How many become zero.
        num_subnormal: How many become subnormal, and not zero.
        num_overflow: How many become infinite.
        headroom: Powers of two from the largest magnitude to the format's largest
            finite value; negative above it, `inf` if there is no element. Between
            zero and minus half a step, values still round to the largest.

    Example:

    >>> Judgement("float16", 0, 4, 1, 0, 0, 15.9).underflow_fraction
    0.25
    """

    precision: str
    shift: int
    num_nonzero: int
    num_underflow: int
    num_subnormal: int
    num_overflow: int
    headroom: float

    @property
    def underflow_fraction(self) -> float:
        """The share that becomes zero, 0 to 1; 0 if there is no element."""
        return self._fraction(self.num_underflow)

    @property
    def subnormal_fraction(self) -> float:
        """The share that becomes subnormal, 0 to 1; 0 if there is no element."""
        return self._fraction(self.num_subnormal)

    @property
    def overflow_fraction(self) -> float:
        """The share that becomes infinite, 0 to 1; 0 if there is no element."""
        return self._fraction(self.num_overflow)

    def to_dict(self) -> dict[str, Any]:
        """Gives the record for JSON; an infinite headroom is None.

        Example:

        >>> Judgement("float16", 3, 0, 0, 0, 0, math.inf).to_dict()["headroom"] is None
        True
        """
        return {
            **asdict(self),
            "headroom": self.headroom if math.isfinite(self.headroom) else None,
            "underflow_fraction": self.underflow_fraction,
            "subnormal_fraction": self.subnormal_fraction,
            "overflow_fraction": self.overflow_fraction,
        }

    def _fraction(self, count: int) -> float:
        return count / self.num_nonzero if self.num_nonzero else 0.0


def judge(
    bins: Sequence[ExponentBin], largest: float, precision: str, *, shift: int = 0
) -> Judgement:
    """Tells what a half format does to values of which only the counts are left.

    Counts are exact for every shift: the values times `2^shift`, as real numbers,
    are rounded once, to nearest, ties to even.

    Args:
        bins: The counts, in any order.
        largest: The largest magnitude; not used without bins.
        precision: `"float16"` or `"bfloat16"`.
        shift: The power of two that the values are multiplied by, of any size.

    Returns:
        A `Judgement`.

    Raises:
        PrecisionError: If the precision is no half format.
        TypeError: If the shift is no integer.

    Example:

    >>> judge([ExponentBin(-25, 7, 2, (0, 0, 0, 0))], 2.0**-24.5, "float16").num_underflow
    2
    """
    name, shift = parse_half(precision), operator.index(shift)
    edges = edges_of(name)
    num_nonzero = sum(item.num_elements for item in bins)
    # Instead of the values, the edges are shifted, the other way.
    num_underflow = _num_up_to(bins, edges.zero_exponent - shift)
    num_normal = _num_from(bins, edges.normal_exponent - shift, edges.normal_run)
    return Judgement(
        precision=name,
        shift=shift,
        num_nonzero=num_nonzero,
        num_underflow=num_underflow,
        num_subnormal=num_nonzero - num_underflow - num_normal,
        num_overflow=_num_from(bins, edges.overflow_exponent - shift, edges.overflow_run),
        headroom=math.log2(format_of(name).largest / largest) - shift if bins else math.inf,
    )


def _num_up_to(bins: Sequence[ExponentBin], exponent: int) -> int:
    """Counts the elements up to and with 2^exponent."""
    below = sum(item.num_elements for item in bins if item.exponent < exponent)
    return below + sum(item.num_powers for item in bins if item.exponent == exponent)


def _num_from(bins: Sequence[ExponentBin], exponent: int, run: int) -> int:
    """Counts the elements from 2^exponent times 1.11...1 on, with so many ones."""
    index = RUNS.index(run)
    above = sum(item.num_elements for item in bins if item.exponent > exponent)
    return above + sum(item.num_runs[index] for item in bins if item.exponent == exponent)
