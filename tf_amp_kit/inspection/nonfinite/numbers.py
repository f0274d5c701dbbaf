"""Numbers in sentences, and the values from which a format overflows."""

from __future__ import annotations

import math
from functools import cache
from typing import Final

from tf_amp_kit.formats import format_of

_NUM_DIGITS: Final = 4
# Up to here whole numbers are written out: 65520, not 6.552e+04.
_LONGEST_WHOLE: Final = 1e6


def number(value: float, num_digits: int = _NUM_DIGITS) -> str:
    """Writes a number with few digits, whole ones in full.

    Example:

    >>> number(65520.0), number(12.3984), number(-1e9)
    ('65520', '12.4', '-1e+09')
    """
    if abs(value) < _LONGEST_WHOLE and (value == int(value) or abs(value) >= 10**num_digits):
        return f"{value:.0f}" if value else "0"
    return f"{value:.{num_digits}g}"


def apart(value: float, limit: float) -> tuple[str, str]:
    """Writes a value and a limit with as many digits as tell them apart.

    Example:

    >>> apart(11.0937, 11.0899)
    ('11.094', '11.09')
    """
    texts = number(value), number(limit)
    for num_digits in range(_NUM_DIGITS, 18):
        if value == limit or texts[0] != texts[1]:
            break
        texts = number(value, num_digits), number(limit, num_digits)
    return texts


@cache
def overflow_limit(dtype: str) -> float:
    """Returns the smallest magnitude that a float dtype rounds to infinity.

    Example:

    >>> overflow_limit("float16")
    65520.0
    """
    return format_of(dtype).overflow_limit


@cache
def log_overflow_limit(dtype: str) -> float:
    """Returns the natural logarithm of `overflow_limit`, for float64 too.

    Example:

    >>> round(log_overflow_limit("float16"), 4)
    11.0901
    """
    return math.log(format_of(dtype).largest) + math.log1p(_half_step(dtype))


def beyond(dtype: str) -> str:
    """Says from where on a format overflows.

    Example:

    >>> beyond("float16")
    'float16 from 65520 on'
    """
    limit = overflow_limit(dtype)
    return f"{dtype} from {number(limit)} on" if math.isfinite(limit) else out_of(dtype)


def out_of(dtype: str) -> str:
    """Says what the largest value of a format is, for sums that do not fit.

    Example:

    >>> out_of("bfloat16")
    'bfloat16, whose largest value is 3.39e+38'
    """
    return f"{dtype}, whose largest value is {number(format_of(dtype).largest)}"


def _half_step(dtype: str) -> float:
    """Half of the step above the largest value, relative to that value."""
    num_bits = format_of(dtype).mantissa_bits
    return math.ldexp(1.0, -num_bits - 1) / (2 - math.ldexp(1.0, -num_bits))
