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
_ROOM: Final = 0.175
# Powers of two, more than what float16's normal values take.
_FAR: Final = 40
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
        divisor: What values in the format were divided by.
    """

    name: str
    smallest_subnormal: float
    smallest_normal: float
    largest: float
    zero_edge: float
    overflow_edge: float
    texts: tuple[str, str, str]
    divisor: float = 1.0

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
    ('$2^{-27}$', '$2^{-17}$', '8188')
    """
    one, edges, shift = format_of(name), edges_of(name), math.log2(divisor)
    limits = [math.log2(x) for x in (one.smallest_subnormal, one.smallest_normal, one.largest)]
    return FormatRange(
        name,
        smallest_subnormal=limits[0] - shift,
        smallest_normal=limits[1] - shift,
        largest=limits[2] - shift,
        zero_edge=edges.zero_exponent - shift,
        overflow_edge=math.log2(to_float(edges.overflow_pattern)) - shift,
        # Powers of two, but for a loss scale that is none.
        texts=(
            f"$2^{{{limits[0] - shift:.4g}}}$",
            f"$2^{{{limits[1] - shift:.4g}}}$",
            _decimal(one.largest / divisor),
        ),
        divisor=divisor,
    )


def ranges_from(judged: str) -> list[FormatRange]:
    """Gives the ranges of both half formats, first the one that is judged by.

    Example:

    >>> [one.name for one in ranges_from("bfloat16")]
    ['bfloat16', 'float16']
    """
    return [range_of(judged), *(range_of(name) for name in HALF_PRECISIONS if name != judged)]


def view_of(
    ranges: Sequence[FormatRange], exponents: Sequence[int], *, is_close: bool = False
) -> tuple[float, float]:
    """Chooses the part of the axis that is shown, in base 2 logarithms.

    All elements are in it, and the first format with room for words on both sides.
    Of another format, limits are in it if the axis would reach as far anyway.

    Args:
        ranges: The formats.
        exponents: Those that there are elements of.
        is_close: Leaves limits of the first format out, too, if all elements are far
            from them: for bars that would be too narrow otherwise.

    Example:

    >>> low, high = view_of([range_of("float16")], [-40, 3])
    >>> low < -40 and high > 16
    True
    """
    low = min(exponents, default=0) - 1.0
    high = max(exponents, default=0) + 2.0
    far = _FAR if is_close and exponents else math.inf
    needs_low = low - ranges[0].smallest_normal < far
    needs_high = ranges[0].largest - high < far
    for _ in range(_NUM_ROUNDS):
        room = _ROOM * (high - low)
        for one in ranges:
            if (one is ranges[0] and needs_low) or low < one.smallest_normal:
                low = min(low, one.smallest_subnormal - room)
            if (one is ranges[0] and needs_high) or high > one.largest:
                high = max(high, one.largest + room)
    return low, high


def _decimal(value: float) -> str:
    if 1e-3 <= value < 1e6:
        return f"{value:.5g}"
    digits, power = f"{value:.2e}".split("e")
    return rf"${digits}\times10^{{{int(power)}}}$"
