"""What is read from an operation only when somebody asks: its traceback and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from tf_amp_kit.tracing.source import Frame, frames_of


class Raw(Protocol):
    """An operation as TensorFlow has it, of a graph or of an eager run."""

    @property
    def operation(self) -> Any:
        """The `tf.Operation`; None of an eager run."""

    def name(self) -> str:
        """Returns the name with its scopes; empty in an eager run."""

    def frames(self) -> Sequence[Frame]:
        """Returns the traceback of the creation, outermost first."""

    def attribute(self, name: str) -> Any:
        """Returns an attribute by name, or None."""


class GraphRaw:
    """An operation of a graph.

    Args:
        operation: The `tf.Operation`.
    """

    __slots__ = ("_frames", "_operation")

    def __init__(self, operation: Any) -> None:
        self._operation = operation
        self._frames: Sequence[Frame] | None = None

    @property
    def operation(self) -> Any:
        """The `tf.Operation`."""
        return self._operation

    def name(self) -> str:
        """Returns the name with its scopes."""
        return str(self._operation.name)

    def frames(self) -> Sequence[Frame]:
        """Returns the traceback of the creation, outermost first."""
        if self._frames is None:
            self._frames = frames_of(self._operation.traceback)
        return self._frames

    def attribute(self, name: str) -> Any:
        """Returns an attribute by name, or None; tensors as arrays."""
        try:
            value = self._operation.get_attr(name)
        except ValueError:
            return None
        return tf.make_ndarray(value) if type(value).__name__ == "TensorProto" else value


class EagerRaw:
    """An operation that ran eagerly.

    Args:
        stack: The stack at that time, as `_keras.stack_frames` gives it.
        attributes: The attributes by name.
    """

    __slots__ = ("_attributes", "_frames", "_stack")

    def __init__(self, stack: Any, attributes: Mapping[str, Any]) -> None:
        self._stack = stack
        self._frames: Sequence[Frame] | None = None
        self._attributes = attributes

    @property
    def operation(self) -> Any:
        """None: there was no graph."""
        return None

    def name(self) -> str:
        """Returns nothing: names are of graphs."""
        return ""

    def frames(self) -> Sequence[Frame]:
        """Returns the traceback of the creation, outermost first."""
        if self._frames is None:
            self._frames = frames_of(self._stack)
        return self._frames

    def attribute(self, name: str) -> Any:
        """Returns an attribute by name, or None."""
        return self._attributes.get(name)
