"""Number formats, and the one parser of precisions. Knows nothing of Keras.

Inside the package a precision is spelled `"float16"`, `"bfloat16"` or
`"float32"`; aliases are parsed here, once, at the edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tf_amp_kit.errors import PrecisionError

__all__ = [
    "HALF_PRECISIONS",
    "Format",
    "format_of",
    "is_float",
    "is_half",
    "parse_precision",
    "round_trip",
    "width",
]

HALF_PRECISIONS: Final = ("float16", "bfloat16")

_ALIASES: Final = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "mixed_bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "mixed_float16": "float16",
    "fp32": "float32",
    "float32": "float32",
}

# Bits of each float dtype that TensorFlow computes in; 8-bit ones are storage.
_WIDTHS: Final = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}


@dataclass(frozen=True)
class Format:
    """The numbers that describe one floating-point format.

    Attributes:
        name: `"float16"`, `"bfloat16"`, `"float32"` or `"float64"`.
        exponent_bits: Bits of the exponent.
        mantissa_bits: Stored bits of the mantissa, without the implicit one.
        largest: The largest finite value.
        smallest_normal: The smallest positive normal value.
        smallest_subnormal: The smallest positive value.
        epsilon: The distance from 1 to the next larger value.
        largest_exact_integer: All integers up to this one are exact.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    largest: float
    smallest_normal: float
    smallest_subnormal: float
    epsilon: float
    largest_exact_integer: int

    @property
    def overflow_limit(self) -> float:
        """The smallest magnitude that rounds to infinity: half a step above the largest.

        For float64 it is infinity, because Python has no larger numbers.

        Example:

        >>> format_of("float16").overflow_limit
        65520.0
        """
        step = 2.0**-self.mantissa_bits
        return self.largest * (1 + step / 2 / (2 - step))

    @property
    def zero_limit(self) -> float:
        """The largest magnitude that rounds to zero: a tie, which goes to the even zero.

        Example:

        >>> format_of("float16").zero_limit == 2.0**-25
        True
        """
        return self.smallest_subnormal / 2


@cache
def format_of(dtype: str) -> Format:
    """Describes a float dtype, from the `ml_dtypes` tables.

    Args:
        dtype: A float dtype's name, `"float16"` for example.

    Returns:
        A `Format`.

    Example:

    >>> format_of("float16").largest
    65504.0
    >>> format_of("bfloat16").largest_exact_integer
    256
    """
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return Format(
        name=dtype,
        exponent_bits=int(info.nexp),
        mantissa_bits=int(info.nmant),
        largest=float(info.max),
        smallest_normal=float(info.smallest_normal),
        smallest_subnormal=float(info.smallest_subnormal),
        epsilon=float(info.eps),
        largest_exact_integer=2 ** (int(info.nmant) + 1),
    )


def parse_precision(name: Any, *, argument: str = "name", also: tuple[str, ...] = ()) -> str:
    """Turns any accepted spelling of a precision into its dtype name.

    Args:
        name: `"bf16"`, `"fp16"`, `"half"`, `"fp32"`, a dtype name, or the name
            of a Keras mixed policy. Upper case is accepted.
        argument: What the caller's user calls this value, for the message.
        also: Words that are accepted besides, `"auto"` for example.

    Returns:
        `"float16"`, `"bfloat16"` or `"float32"`, or a word of `also`.

    Raises:
        PrecisionError: If `name` is none of these.

    Example:

    >>> parse_precision("bf16")
    'bfloat16'
    >>> parse_precision("mixed_float16")
    'float16'
    """
    known = {**_ALIASES, **{word: word for word in also}}
    if isinstance(name, str) and name.lower() in known:
        return known[name.lower()]
    raise PrecisionError(
        f"Unknown precision. Expected one of {sorted(known)}. "
        f"Received: {argument}={name!r}. "
        "For 8-bit formats use Keras's `model.quantize()`."
    )


def is_half(dtype: str) -> bool:
    """Tells whether a dtype is one of the two half formats.

    Example:

    >>> is_half("bfloat16"), is_half("float32")
    (True, False)
    """
    return dtype in HALF_PRECISIONS


def is_float(dtype: str) -> bool:
    """Tells whether a dtype is a floating-point one that layers compute in.

    Example:

    >>> is_float("float64"), is_float("int32")
    (True, False)
    """
    return dtype in _WIDTHS


def width(dtype: str) -> int:
    """Returns the bits of a float dtype, and 0 for every other dtype.

    Example:

    >>> width("bfloat16") < width("float32")
    True
    """
    return _WIDTHS.get(dtype, 0)


def round_trip(values: ArrayLike, dtype: str) -> NDArray[np.float64]:
    """Rounds values to a format, and gives them back as float64.

    Args:
        values: Numbers of any shape.
        dtype: The format's dtype name.

    Returns:
        A float64 array of the same shape. What does not fit is `inf`.

    Example:

    >>> float(round_trip(1e-8, "float16")), float(round_trip(7e4, "float16"))
    (0.0, inf)
    """
    # Through float32, as TensorFlow does: a float64 value may round twice.
    first = np.float64 if dtype == "float64" else np.float32
    with np.errstate(all="ignore"):
        rounded = np.asarray(values, first).astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))
    return rounded.astype(np.float64)
