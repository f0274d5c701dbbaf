"""Numbers, counts and sizes in words, as the records of comparisons print them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

__all__ = ["counted", "listed", "milliseconds", "number", "size"]

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def number(value: float | None, digits: int = 3) -> str:
    """Writes a number, in words if it is not finite, and a dash for none.

    Example:

    >>> number(0.0012345), number(float("inf")), number(float("nan")), number(None)
    ('0.00123', 'not finite', 'undefined', '-')
    """
    if value is None:
        return "-"
    if math.isnan(value):
        return "undefined"
    return f"{value:.{digits}g}" if math.isfinite(value) else "not finite"


def counted(count: int, noun: str) -> str:
    """Writes a count with its noun, which takes an s or es.

    Example:

    >>> counted(1, "pass"), counted(2, "pass"), counted(2, "batch"), counted(0, "layer")
    ('1 pass', '2 passes', '2 batches', '0 layers')
    """
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def milliseconds(seconds: float) -> str:
    """Writes a duration in milliseconds, without their name.

    Example:

    >>> milliseconds(0.0012345), milliseconds(12.3456)
    ('1.23', '12346')
    """
    return f"{1000 * seconds:.0f}" if seconds >= 1 else f"{1000 * seconds:.3g}"


def size(num_bytes: int | None) -> str:
    """Writes a number of bytes with three digits, and a dash for none.

    Example:

    >>> size(512), size(1_572_864), size(1023 * 1024 * 1024), size(30 * 2**30), size(None)
    ('512 bytes', '1.50 MiB', '1023 MiB', '30.0 GiB', '-')
    """
    if num_bytes is None:
        return "-"
    power = min(max(num_bytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    value = num_bytes / 1024**power
    decimals = 0 if power == 0 or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{decimals}f} {_UNITS[power]}"


def listed(names: Sequence[object]) -> str:
    """Writes names one after the other, with "and" before the last.

    Example:

    >>> listed(["loss"]), listed([0, 1]), listed([0, 1, 2])
    ('loss', '0 and 1', '0, 1 and 2')
    """
    *most, last = map(str, names)
    return f"{', '.join(most)} and {last}" if most else last
