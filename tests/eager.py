"""What a model does in an eager run, seen without the package.

Shares no code with `tf_amp_kit`. Calls of layers, and of Keras's operations, are seen by
replacing `__call__`, TensorFlow's operations by its callback for them.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import keras
from tensorflow.python.framework import op_callbacks

__all__ = [
    "HALF",
    "WIDE",
    "Call",
    "EagerRun",
    "Operation",
    "dtype_of",
    "seen_eagerly",
    "tensors_in",
]

HALF: Final = frozenset({"float16", "bfloat16"})
WIDE: Final = frozenset({"float32", "float64"})
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "Conv", "Einsum", "DepthwiseConv")


@dataclass(eq=False)
class Call:
    """One call of a layer, or of an operation of Keras between layers.

    Attributes:
        callee: The layer or operation.
        around: The call around it, None for the outermost.
        args: The arguments by position.
        kwargs: The others.
        count: How many operations of its class the call around it ran before.
        result: What it returned.
    """

    callee: Any
    around: Call | None
    args: Any
    kwargs: Any
    count: int = 0
    result: Any = None
    _counts: Counter[type] = field(default_factory=Counter)

    @property
    def is_layer(self) -> bool:
        """Whether a layer was called, and no operation."""
        return isinstance(self.callee, keras.layers.Layer)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The dtypes of what it returned."""
        return tuple(dtype_of(one) for one in tensors_in(self.result))

    @property
    def is_told_half(self) -> bool:
        """Whether this is a layer that was told to compute in half, a model included."""
        return self.is_layer and self.callee.compute_dtype in HALF

    @property
    def is_half(self) -> bool:
        """Whether this is a layer, and no model, that was told to compute in half."""
        return self.is_told_half and not isinstance(self.callee, keras.Model)

    def with_all_around(self) -> Iterator[Call]:
        """Yields it and the calls around it, innermost first."""
        current: Call | None = self
        while current is not None:
            yield current
            current = current.around


@dataclass(eq=False)
class Operation:
    """An operation that TensorFlow ran, with the innermost call around it.

    Attributes:
        type: Its type.
        inputs: The tensors that it got.
        outputs: The tensors that it made.
        call: The innermost call around it, None outside of all.
        is_traced: Whether it was put into a graph: of a function that Keras makes for
            one operation, or to infer shapes.
    """

    type: str
    inputs: list[Any]
    outputs: list[Any]
    call: Call | None
    is_traced: bool

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices."""
        return self.type.startswith(_PRODUCTS)

    @property
    def is_wide(self) -> bool:
        """Whether its result is wider than half precision."""
        return bool(self.outputs) and self.outputs[0].dtype.name in WIDE


@dataclass
class EagerRun:
    """The calls of a run in the order of entering, and its operations."""

    calls: list[Call] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    _open: list[Call] = field(default_factory=list)

    @property
    def layer_calls(self) -> list[Call]:
        """The calls of layers."""
        return [call for call in self.calls if call.is_layer]

    @property
    def eager_operations(self) -> list[Operation]:
        """The operations that ran at once, and were not put into a graph."""
        return [one for one in self.operations if not one.is_traced]

    @cached_property
    def needed(self) -> set[int]:
        """The ids of the tensors that the result, or a variable, depends on.

        A trace leaves out what nobody uses; a graph does not run it either.
        """
        found = {id(one) for one in tensors_in(self.calls[0].result)}
        for operation in reversed(self.eager_operations):
            is_read = any(id(one) in found for one in operation.outputs)
            if is_read or operation.type.startswith("Assign"):
                found.update(map(id, operation.inputs))
        return found

    @property
    def wide_products(self) -> Iterator[Operation]:
        """The wide matrix products that are needed."""
        for one in self.eager_operations:
            if one.is_product and one.is_wide and id(one.outputs[0]) in self.needed:
                yield one

    def returns_wide(self, call: Call) -> bool:
        """Tells whether a call returns wide floats that are needed."""
        return any(
            dtype_of(one) in WIDE and id(one) in self.needed for one in tensors_in(call.result)
        )

    def call(self, original: Any, callee: Any, args: Any, kwargs: Any) -> Any:
        """Makes a call, and takes it down."""
        around = self._open[-1] if self._open else None
        call = Call(callee, around, args, kwargs)
        if around is not None:
            call.count = around._counts[type(callee)]
            around._counts[type(callee)] += 1
        self.calls.append(call)
        self._open.append(call)
        try:
            call.result = original(callee, *args, **kwargs)
        finally:
            self._open.pop()
        return call.result

    def see(
        self,
        op_type: Any,
        inputs: Any,
        attrs: Any,
        outputs: Any,
        op_name: Any = None,
        graph: Any = None,
    ) -> None:
        """Takes down an operation of TensorFlow."""
        kind = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
        call = self._open[-1] if self._open else None
        one = Operation(kind, list(inputs), list(outputs), call, graph is not None)
        self.operations.append(one)


def dtype_of(value: Any) -> str:
    """Returns the name of a tensor's dtype."""
    return keras.backend.standardize_dtype(value.dtype)


def tensors_in(structure: Any) -> list[Any]:
    """Returns the tensors of a structure."""
    return [one for one in keras.tree.flatten(structure) if hasattr(one, "dtype")]


@contextlib.contextmanager
def seen_eagerly() -> Iterator[EagerRun]:
    """Takes down what runs in a `with` block; all is as before afterwards."""
    run = EagerRun()
    of_layers, of_operations = keras.layers.Layer.__call__, keras.Operation.__call__

    @functools.wraps(of_layers)
    def call_layer(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return run.call(of_layers, layer, args, kwargs)

    @functools.wraps(of_operations)
    def call_operation(operation: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(operation, keras.layers.Layer):  # by way of `super()`
            return of_operations(operation, *args, **kwargs)
        return run.call(of_operations, operation, args, kwargs)

    keras.layers.Layer.__call__, keras.Operation.__call__ = call_layer, call_operation
    see = run.see
    op_callbacks.add_op_callback(see)
    try:
        yield run
    finally:
        op_callbacks.remove_op_callback(see)
        keras.layers.Layer.__call__, keras.Operation.__call__ = of_layers, of_operations
