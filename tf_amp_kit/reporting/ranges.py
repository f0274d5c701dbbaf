"""The ranges of the half formats on an axis of exponents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tf_amp_kit.formats import HALF_PRECISIONS, format_of
from tf_amp_kit.inspection.numerics.patterns import edges_of, to_float

__all__ = ["FormatRange", "range_of", "ranges_from", "view_of"]

# The share of the axis that the words beside a limit need.
_ROOM: Final = 0.17
# Each round brings the view three times nearer to the one that fits.
_NUM_ROUNDS: Final = 20


@dataclass(frozen=True)
class FormatRange:
    """The limits of a format, as base 2 logarithms.

    Attributes:
        name: `"float16"` or `"bfloat16"`.
        smallest_subnormal: Of the smallest positive value.
        smallest_normal: Of the smallest positive normal value.
        largest: Of the largest finite value.
        zero_edge: Up to here everything is rounded to zero.
        overflow_edge: From here on everything is rounded to infinity.
        texts: The first three as they are written.
    """

    name: str
    smallest_subnormal: float
    smallest_normal: float
    largest: float
    zero_edge: float
    overflow_edge: float
    texts: tuple[str, str, str]

    @property
    def limits(self) -> tuple[float, float, float]:
        """The smallest subnormal, the smallest normal and the largest value."""
        return self.smallest_subnormal, self.smallest_normal, self.largest


def range_of(name: str, divisor: float = 1.0) -> FormatRange:
    """Gives the range of values that were in a format before they were divided.

    Args:
        name: `"float16"` or `"bfloat16"`.
        divisor: What they were divided by, a loss scale.

    Returns:
        A `FormatRange`.

    Example:

    >>> range_of("float16").smallest_subnormal, range_of("float16", 8.0).smallest_subnormal
    (-24.0, -27.0)
    >>> range_of("float16", 8.0).texts
    ('$2^{-24}$/8', '$2^{-14}$/8', '65504/8')
    """
    one, edges, shift = format_of(name), edges_of(name), math.log2(divisor)
    limits = [math.log2(x) for x in (one.smallest_subnormal, one.smallest_normal, one.largest)]
    suffix = "" if divisor == 1 else f"/{divisor:g}"
    return FormatRange(
        name,
        smallest_subnormal=limits[0] - shift,
        smallest_normal=limits[1] - shift,
        largest=limits[2] - shift,
        zero_edge=edges.zero_exponent - shift,
        overflow_edge=math.log2(to_float(edges.overflow_pattern)) - shift,
        texts=(
            f"$2^{{{limits[0]:g}}}${suffix}",
            f"$2^{{{limits[1]:g}}}${suffix}",
            f"{_decimal(one.largest)}{suffix}",
        ),
    )


def ranges_from(judged: str) -> list[FormatRange]:
    """Gives the ranges of both half formats, first the one that is judged by.

    Example:

    >>> [one.name for one in ranges_from("bfloat16")]
    ['bfloat16', 'float16']
    """
    return [range_of(judged), *(range_of(name) for name in HALF_PRECISIONS if name != judged)]


def view_of(ranges: Sequence[FormatRange], exponents: Sequence[int]) -> tuple[float, float]:
    """Chooses the part of the axis that is shown, in base 2 logarithms.

    All elements are in it, and the first format with room for words on both sides.
    Of another format, limits are in it if the axis would reach as far anyway.

    Example:

    >>> low, high = view_of([range_of("float16")], [-40, 3])
    >>> low < -40 and high > 16
    True
    """
    low = min(exponents, default=0) - 1.0
    high = max(exponents, default=0) + 2.0
    for _ in range(_NUM_ROUNDS):
        room = _ROOM * (high - low)
        for one in ranges:
            if one is ranges[0] or low < one.smallest_normal:
                low = min(low, one.smallest_subnormal - room)
            if one is ranges[0] or high > one.largest:
                high = max(high, one.largest + room)
    return low, high


def _decimal(value: float) -> str:
    if value < 1e6:
        return f"{value:g}"
    digits, power = f"{value:.2e}".split("e")
    return rf"${digits}\times10^{{{int(power)}}}$"
