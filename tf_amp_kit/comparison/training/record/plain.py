"""Records as dictionaries, lists, strings and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from tf_amp_kit.comparison.stored import without_numpy

__all__ = ["as_plain"]


def as_plain(value: Any) -> Any:
    """Turns records, and what they hold, into what strict JSON knows.

    Args:
        value: A record; one with a `to_dict` of its own is asked for that.

    Returns:
        Dictionaries, lists, strings and numbers; None for numbers that are not finite.

    Example:

    >>> from tf_amp_kit.comparison.timing import Quartiles
    >>> as_plain({"seconds": Quartiles(1.0, 2.0, math.inf), "paths": ("a",)})
    {'seconds': {'low': 1.0, 'median': 2.0, 'high': None}, 'paths': ['a']}
    """
    value = without_numpy(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): as_plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [as_plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _fields_of(value)
    return value


def _fields_of(record: Any) -> dict[str, Any]:
    own = {one.name: getattr(record, one.name) for one in fields(record)}
    return {
        name: value.to_dict() if hasattr(value, "to_dict") else as_plain(value)
        for name, value in own.items()
    }
