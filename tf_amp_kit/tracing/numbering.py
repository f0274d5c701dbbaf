"""The numbers of the tensors in a structure of arguments or outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import tensorflow as tf

from tf_amp_kit.tracing.records import Operation, Tensor

__all__ = ["Reader", "flat_tensors", "keyed_arguments", "keyed_leaves", "keyed_numbers", "numbers"]


class Reader(Protocol):
    """Numbers tensors and holds operations; one for graphs, one for eager runs."""

    operations: list[Operation]
    tensors: list[Tensor]

    def number(self, value: Any) -> int | None:
        """Returns a tensor's number, or None for what the trace never saw."""


def numbers(structure: Any, reader: Reader) -> tuple[int, ...]:
    """Returns the numbers of all tensors in a structure."""
    return tuple(
        key
        for value in flat_tensors(structure)
        for key in [reader.number(value)]
        if key is not None
    )


def keyed_numbers(structure: Any, reader: Reader) -> dict[str, int]:
    """Returns the numbers of all tensors in a structure, by their place in it."""
    return {
        place: key
        for place, leaf in keyed_leaves(structure)
        for value in flat_tensors(leaf)
        for key in [reader.number(value)]
        if key is not None
    }


def keyed_arguments(arguments: tuple[Any, Any]) -> Any:
    """Returns what a model's inputs are keyed by: its one argument, or all."""
    args, kwargs = arguments
    named = {key: value for key, value in kwargs.items() if flat_tensors(value)}
    if len(args) == 1 and (isinstance(args[0], dict) or not named):
        return {**args[0], **named} if named else args[0]
    return {**dict(enumerate(args)), **named}


def flat_tensors(structure: Any) -> list[Any]:
    """Returns all tensors in a structure, composite ones taken apart."""
    return [
        value for value in tf.nest.flatten(structure, expand_composites=True) if tf.is_tensor(value)
    ]


def keyed_leaves(structure: Any) -> Iterator[tuple[str, Any]]:
    """Yields what is in lists, tuples and dictionaries, by its place in them.

    Example:

    >>> list(keyed_leaves({"a": [1, 2]})), list(keyed_leaves(3))
    ([('a/0', 1), ('a/1', 2)], [('0', 3)])
    """
    for path, leaf in _leaves(structure, ()):
        yield "/".join(map(str, path)) or "0", leaf


def _leaves(structure: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
    if isinstance(structure, dict):
        for key, value in structure.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(structure, list | tuple):
        for index, value in enumerate(structure):
            yield from _leaves(value, (*path, index))
    else:
        yield path, structure
