"""Records of numbers as strict JSON, and back as they were."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from tf_amp_kit.errors import AmpError

__all__ = ["as_plain", "read_as", "read_file", "without_numpy", "written"]

Record = TypeVar("Record")

# Strict JSON has no numbers for these.
_WORDS: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def without_numpy(value: Any) -> Any:
    """Turns a number of NumPy's, which JSON does not know, into one of Python's.

    Example:

    >>> without_numpy(np.bool_(True)), without_numpy(1.5)
    (True, 1.5)
    """
    return value.item() if isinstance(value, np.generic) else value


def written(value: Any) -> Any:
    """Turns records into dictionaries, and numbers that are not finite into words.

    Args:
        value: A dataclass, a tuple, a mapping with text as keys, or what JSON knows.

    Example:

    >>> written(({"loss": math.inf}, 1, None))
    [{'loss': 'Infinity'}, 1, None]
    """
    # What JSON in Python calls them, as text.
    return _strict(value, _fields_of, json.dumps)


def as_plain(value: Any) -> Any:
    """Turns records into what other programs read, with what they derive from their fields.

    Args:
        value: As in `written`; a record inside of another is asked for its own `to_dict`.

    Returns:
        Dictionaries, lists, strings and numbers; None for numbers that are not finite.

    Example:

    >>> as_plain({"seconds": (1.0, math.inf), "paths": ("a",)})
    {'seconds': [1.0, None], 'paths': ['a']}
    """

    def fields_of(record: Any) -> dict[str, Any]:
        own = _fields_of(record)
        return {k: v.to_dict() if hasattr(v, "to_dict") else v for k, v in own.items()}

    return _strict(value, fields_of, lambda _: None)


def _fields_of(record: Any) -> dict[str, Any]:
    return {one.name: getattr(record, one.name) for one in fields(record)}


def _strict(
    value: Any, fields_of: Callable[[Any], dict[str, Any]], nonfinite: Callable[[float], Any]
) -> Any:
    if is_dataclass(value):
        value = fields_of(value)
    if isinstance(value, Mapping):
        return {str(key): _strict(one, fields_of, nonfinite) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_strict(one, fields_of, nonfinite) for one in value]
    plain = without_numpy(value)
    is_strict = not isinstance(plain, float) or math.isfinite(plain)
    return plain if is_strict else nonfinite(plain)


def read_as(value: Any, hint: Any, name: str) -> Any:
    """Gives what `written` made the type that a record declares for it.

    Args:
        value: What JSON gave.
        hint: The type: a dataclass, a tuple of any length, a mapping with text as keys, a
            number, a bool, text, or one of these or None.
        name: What the message of an error calls it.

    Raises:
        TypeError: If it has another type; the message has the name.
        KeyError: If a record lacks a field.

    Example:

    >>> read_as(["NaN", 1], tuple[float, ...], "losses")
    (nan, 1.0)
    """
    alternatives = get_args(hint)
    if NoneType in alternatives:
        (inner,) = (one for one in alternatives if one is not NoneType)
        return None if value is None else read_as(value, inner, name)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(read_as(one, alternatives[0], name) for one in value)
    if get_origin(hint) is Mapping and isinstance(value, dict):
        return {key: read_as(one, alternatives[1], f"{name}/{key}") for key, one in value.items()}
    if is_dataclass(hint) and isinstance(value, dict):
        kind: Any = hint
        hints = _hints_of(kind).items()
        return kind(**{key: read_as(value[key], one, f"{name}/{key}") for key, one in hints})
    if hint is float and (number := _number(value)) is not None:
        return number
    if type(value) is hint:
        return value
    raise TypeError(f"{name} is {value!r}")


# A comparison holds thousands of the same few classes.
_hints_of = cache(get_type_hints)


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _WORDS.get(value)
    return float(value) if type(value) in (int, float) else None


def read_file(
    path: str | os.PathLike[str],
    parse: Callable[[Any], Record],
    *,
    expected: str,
    error_class: type[AmpError],
) -> Record:
    """Reads a file of JSON, and says in one way what is wrong with another.

    Args:
        path: The file.
        parse: Makes the record of what JSON gave; it may raise what damaged content
            raises: `KeyError`, `TypeError`, `ValueError` and so on.
        expected: The first two sentences of the error: what the file is not, and what
            was expected.
        error_class: What to raise.

    Returns:
        What `parse` returns.

    Raises:
        AmpError: If the file holds something else; of `error_class`.
        OSError: If it cannot be read.
    """
    try:
        return parse(json.loads(Path(path).read_text(encoding="utf-8")))
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise error_class(
            f"{expected} Received: {str(path)!r} ({_what_is_wrong(error)})."
        ) from error


def _what_is_wrong(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
