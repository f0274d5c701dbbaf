"""Private names about what a graph takes from outside, variables above all."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class WrittenVariable:
    """A variable that a graph writes, by its handle: whoever owns it.

    Uses `_handle_data` of the handle: there is no public way from a handle to the
    dtype of its variable.

    Args:
        handle: A resource tensor.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.dtype = tf.as_dtype(handle._handle_data.shape_and_type[0].dtype)

    def read(self) -> Any:
        """Returns the present value."""
        return tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self.dtype)

    def is_finite(self) -> bool:
        """Tells whether there is no NaN and no Inf in it."""
        return not self.dtype.is_floating or bool(tf.reduce_all(tf.math.is_finite(self.read())))

    def assign(self, value: Any) -> None:
        """Writes a value."""
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=value)


def written_variables(graph: Any) -> list[WrittenVariable]:
    """Lists the variables that a graph may write: those that it does not only read.

    Uses `FuncGraph.captures`, of a class that has no public name.

    Args:
        graph: A `FuncGraph`.
    """
    return [
        WrittenVariable(outside)
        for outside, inside in graph.captures
        if outside.dtype == tf.resource
        and _is_variable(outside)
        and any(consumer.type != "ReadVariableOp" for consumer in inside.consumers())
    ]


def captured_from(graph: Any, tensor: Any) -> Any:
    """Returns what a placeholder of a graph stands for outside of it, or None.

    Uses `FuncGraph.captures`, of a class that has no public name.
    """
    return next((outside for outside, inside in graph.captures if inside is tensor), None)


def captured_by_outside(graph: Any) -> dict[int, Any]:
    """Returns the placeholders of a graph by the `id` of what they stand for outside.

    Uses `FuncGraph.captures`, of a class that has no public name.
    """
    return {id(outside): inside for outside, inside in graph.captures}


def handles_of(variable: Any) -> list[Any]:
    """Returns the handles of a `tf.Variable`: of a distributed one those of all replicas.

    Uses the attribute `values` of distributed variables, whose classes have no
    public name.
    """
    return [one.handle for one in getattr(variable, "values", (variable,))]


def _is_variable(handle: Any) -> bool:
    data = getattr(handle, "_handle_data", None)
    return data is not None and bool(data.is_set) and len(data.shape_and_type) == 1
