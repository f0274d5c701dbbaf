"""Bit patterns of float32, and the few patterns at which a half format changes its mind.

Without its sign bit, a float32 sorts as an integer does. So everything that is
counted here is counted on integers: it is exact, and stays so in threads in
which TensorFlow makes the processor flush subnormals to zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Final

from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.formats import HALF_PRECISIONS, format_of, is_half, parse_precision

__all__ = [
    "FRACTION",
    "FRACTION_BITS",
    "HIGHEST_EXPONENT",
    "INFINITY",
    "LOWEST_EXPONENT",
    "MAGNITUDE",
    "RUNS",
    "SMALLEST_NORMAL",
    "Edges",
    "edges_of",
    "parse_half",
    "to_float",
]

FRACTION_BITS: Final = format_of("float32").mantissa_bits
_EXPONENT_BITS: Final = format_of("float32").exponent_bits

FRACTION: Final = (1 << FRACTION_BITS) - 1
MAGNITUDE: Final = (1 << (FRACTION_BITS + _EXPONENT_BITS)) - 1
INFINITY: Final = MAGNITUDE - FRACTION
SMALLEST_NORMAL: Final = 1 << FRACTION_BITS


def _exponent(value: float) -> int:
    """Gives the e of 2^e <= value < 2^(e + 1)."""
    return math.frexp(value)[1] - 1


LOWEST_EXPONENT: Final = _exponent(format_of("float32").smallest_subnormal)
HIGHEST_EXPONENT: Final = _exponent(format_of("float32").largest)


@dataclass(frozen=True)
class Edges:
    """Where values start to vanish, to be subnormal and to overflow in a half format.

    Rounding is to nearest, ties to even. With m mantissa bits, half a step below
    a power of two is the one below it times 1.11...1, with m ones, and where the
    power of two would start a new step size, with m + 1 ones.

    Attributes:
        mantissa_bits: Stored bits of the format's mantissa.
        smallest_exponent: The exponent of the smallest normal value.
        zero_exponent: Up to and with 2 to this, everything becomes zero.
        normal_exponent: Normal values start in this bin, ...
        normal_run: ... where the mantissa starts with so many ones.
        overflow_exponent: Overflow starts in this bin, ...
        overflow_run: ... where the mantissa starts with so many ones.
    """

    mantissa_bits: int
    smallest_exponent: int
    zero_exponent: int
    normal_exponent: int
    normal_run: int
    overflow_exponent: int
    overflow_run: int

    @property
    def overflow_pattern(self) -> int:
        """The float32 pattern of the smallest magnitude that overflows."""
        ones = (1 << self.overflow_run) - 1
        biased = self.overflow_exponent + HIGHEST_EXPONENT
        return (biased << FRACTION_BITS) | (ones << (FRACTION_BITS - self.overflow_run))


@cache
def edges_of(precision: str) -> Edges:
    """Derives a half format's edges from its description.

    Args:
        precision: `"float16"` or `"bfloat16"`.

    Returns:
        The `Edges`.

    Example:

    >>> edges_of("float16").zero_exponent, hex(edges_of("bfloat16").overflow_pattern)
    (-25, '0x7f7f8000')
    """
    form = format_of(precision)
    smallest = _exponent(form.smallest_normal)
    return Edges(
        mantissa_bits=form.mantissa_bits,
        smallest_exponent=smallest,
        zero_exponent=_exponent(form.smallest_subnormal) - 1,
        normal_exponent=smallest - 1,
        normal_run=form.mantissa_bits,
        overflow_exponent=_exponent(form.largest),
        overflow_run=form.mantissa_bits + 1,
    )


# Whatever the shift, an edge of either format is a mantissa that starts with
# one of these numbers of ones.
RUNS: Final = tuple(
    sorted(
        {edges_of(half).normal_run for half in HALF_PRECISIONS}
        | {edges_of(half).overflow_run for half in HALF_PRECISIONS}
    )
)


def parse_half(precision: str) -> str:
    """Parses the name of a half format, and refuses every other one.

    Args:
        precision: Any spelling that `parse_precision` knows.

    Returns:
        `"float16"` or `"bfloat16"`.

    Raises:
        PrecisionError: If it is neither.

    Example:

    >>> parse_half("bf16")
    'bfloat16'
    """
    parsed = parse_precision(precision, argument="precision")
    if not is_half(parsed):
        raise PrecisionError(
            f"Only the half formats {list(HALF_PRECISIONS)} are judged: float32 is what they "
            f"are judged against. Received: precision={precision!r}."
        )
    return parsed


def to_float(pattern: int) -> float:
    """Turns a magnitude's pattern, negated for a negative value, into its value.

    Example:

    >>> to_float(-0x3F800000), to_float(1) == 2.0**-149
    (-1.0, True)
    """
    magnitude = abs(pattern)
    biased, fraction = magnitude >> FRACTION_BITS, magnitude & FRACTION
    # From integers: a cast of a subnormal may flush it.
    if biased:
        fraction, biased = fraction | SMALLEST_NORMAL, biased - 1
    return math.copysign(math.ldexp(fraction, biased + LOWEST_EXPONENT), pattern)
