"""Squares of values, and of what a half format's rounding changes in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.formats import format_of
from tf_amp_kit.inspection.numerics.chunks import CHUNK, scratch
from tf_amp_kit.inspection.numerics.patterns import (
    FRACTION_BITS,
    LOWEST_EXPONENT,
    SMALLEST_NORMAL,
    edges_of,
)

__all__ = ["flushes_subnormals", "square_errors", "widen"]

# From here on, the last bit of a float32 is itself a normal float32.
_LAST_BIT_IS_NORMAL: Final = (FRACTION_BITS + 1) << FRACTION_BITS

# Described on import: in a thread that flushes subnormals, NumPy 1 warns when it
# looks for the smallest one, finds zero, and that would be remembered.
_FORMATS: Final = {name: format_of(name) for name in ("float32", "float64")}

# Arrays of one: NumPy works on numbers in other ways.
_SUBNORMAL: Final = np.array([1], np.uint32).view(np.float32)
_ONE: Final = np.ones(1, np.float32)


@dataclass(frozen=True, eq=False)
class _Grid:
    """How to find each value's step in a half format by adding integers.

    The step of a value with exponent e is `2^(max(e, smallest) - m)`, with the
    format's m mantissa bits. The power of two whose last bit is that step takes the
    rest of a magnitude's bits away when it is added.

    Attributes:
        exponent_mask: The exponent's bits in the float type that computes.
        floor: The pattern of the format's smallest normal value, many times: NumPy
            takes the maximum of two arrays faster than that of one and a number.
        raise_by: From the pattern of the exponent to that of the number to add.
        half_step: What rounds a normal value's pattern when it is added, ...
        kept_bits: ... and the bits that are left of it.
        shares_floor: The format's exponents end where the float type's end, so that the
            same bits of a pattern are left of subnormals.
    """

    exponent_mask: np.integer[Any]
    floor: NDArray[Any]
    raise_by: np.integer[Any]
    half_step: np.integer[Any]
    kept_bits: np.integer[Any]
    shares_floor: bool


@cache
def _grid_of(precision: str, dtype: str) -> _Grid:
    form, edges = _FORMATS[dtype], edges_of(precision)
    integer: Any = np.uint32 if dtype == "float32" else np.uint64
    bits = form.mantissa_bits
    dropped = bits - edges.mantissa_bits
    bias = 2 ** (form.exponent_bits - 1) - 1
    return _Grid(
        exponent_mask=integer((2**form.exponent_bits - 1) << bits),
        floor=np.full(CHUNK, (edges.smallest_exponent + bias) << bits, integer),
        raise_by=integer(dropped << bits),
        half_step=integer(1 << (dropped - 1)),
        kept_bits=integer(np.iinfo(integer).max - ((1 << dropped) - 1)),
        shares_floor=edges.smallest_exponent + bias == 1,
    )


def flushes_subnormals() -> bool:
    """Tells whether this thread takes float32's subnormals for zeros.

    TensorFlow sets its own threads so, which run `tf.numpy_function` for example.

    Example:

    >>> flushes_subnormals()
    False
    """
    return not np.multiply(_SUBNORMAL, _ONE).view(np.uint32).any()


def widen(
    bits: NDArray[np.uint32], values: NDArray[np.float32], *, smallest: int
) -> NDArray[np.float64]:
    """Casts a chunk to float64, with its subnormals whatever the thread does.

    Args:
        bits: The patterns of the values' magnitudes.
        values: At most a chunk.
        smallest: The smallest pattern that is not zero.

    Returns:
        A float64 array in scratch memory.

    Example:

    >>> one = np.array([1], np.uint32)
    >>> float(widen(one, one.view(np.float32), smallest=1)[0])
    1.401298464324817e-45
    """
    wide = scratch.wide[: values.size]
    np.copyto(wide, values)
    if smallest < SMALLEST_NORMAL and flushes_subnormals():
        subnormal = np.flatnonzero(bits - np.uint32(1) < np.uint32(SMALLEST_NORMAL - 1))
        magnitudes = bits[subnormal] * 2.0**LOWEST_EXPONENT
        wide[subnormal] = np.copysign(magnitudes, values[subnormal])
    return wide


def square_errors(bits: NDArray[np.uint32], precision: str, *, smallest: int) -> float:
    """Sums the squares of (rounded - value) over values that do not overflow.

    Rounded to even or not makes no difference here: a tie is half a step away
    from both sides. So magnitudes are enough, too.

    Args:
        bits: Patterns of magnitudes below the format's overflow, at most a chunk.
        precision: The half format that they are rounded to.
        smallest: The smallest pattern that is not zero.

    Returns:
        The sum, in float64.

    Example:

    >>> tie = np.array([1.0 + 2.0**-11], np.float32).view(np.uint32)
    >>> square_errors(tie, "float16", smallest=int(tie[0])) == 2.0**-22
    True
    """
    size = bits.size
    if smallest < _LAST_BIT_IS_NORMAL and flushes_subnormals():
        values = widen(bits, bits.view(np.float32), smallest=smallest)
        squares = np.empty(size, np.float64)
        grid = _grid_of(precision, "float64")
        _subtract_rounded(values, grid, np.empty(size, np.uint64), squares)
    else:
        grid = _grid_of(precision, "float32")
        steps, error = scratch.first[:size], scratch.second[:size].view(np.float32)
        if smallest < grid.floor[0] and not grid.shares_floor:
            _subtract_rounded(bits.view(np.float32), grid, steps, error)
        else:
            _subtract_rounded_patterns(bits, grid, steps, error)
        squares = scratch.wide[:size]
        np.copyto(squares, error)
    np.square(squares, out=squares)
    return float(np.add.reduce(squares))


def _subtract_rounded_patterns(
    bits: NDArray[np.uint32], grid: _Grid, rounded: NDArray[np.uint32], error: NDArray[np.float32]
) -> None:
    """Does the same in half the time, where a step is always the same bit of the pattern."""
    np.add(bits, grid.half_step, out=rounded)
    np.bitwise_and(rounded, grid.kept_bits, out=rounded)
    np.subtract(rounded.view(np.float32), bits.view(np.float32), out=error)


def _subtract_rounded(
    values: NDArray[Any], grid: _Grid, steps: NDArray[Any], error: NDArray[Any]
) -> None:
    """Leaves (rounded - value) in `error`; all arrays have one size."""
    np.bitwise_and(values.view(steps.dtype), grid.exponent_mask, out=steps)
    np.maximum(steps, grid.floor[: steps.size], out=steps)
    np.add(steps, grid.raise_by, out=steps)
    large = steps.view(values.dtype)
    np.add(values, large, out=error)
    np.subtract(error, large, out=error)
    np.subtract(error, values, out=error)
