"""What layers return in an eager run, seen without the package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import keras
from tensorflow.python.framework import op_callbacks

__all__ = ["Call", "EagerRun", "Operation", "seen_eagerly"]

HALF: Final = frozenset({"float16", "bfloat16"})
WIDE: Final = frozenset({"float32", "float64"})
_PRODUCTS: Final = ("MatMul", "BatchMatMul", "Conv", "Einsum", "DepthwiseConv")


@dataclass(eq=False)
class Call:
    """One call of a layer.

    Attributes:
        layer: The layer.
        around: The call around it, None for the outermost.
        args: The arguments by position.
        kwargs: The others.
        result: What it returned.
    """

    layer: keras.layers.Layer
    around: Call | None
    args: Any
    kwargs: Any
    result: Any = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The dtypes of what it returned."""
        return tuple(dtype_of(one) for one in tensors_in(self.result))

    @property
    def is_half(self) -> bool:
        """Whether this is a layer, and no model, that was told to compute in half."""
        is_model = isinstance(self.layer, keras.Model)
        return not is_model and self.layer.compute_dtype in HALF

    def with_all_around(self) -> Iterator[Call]:
        """Yields it and the calls around it, innermost first."""
        current: Call | None = self
        while current is not None:
            yield current
            current = current.around


@dataclass(eq=False)
class Operation:
    """An operation that TensorFlow ran, with the innermost layer call around it."""

    type: str
    inputs: list[Any]
    outputs: list[Any]
    call: Call | None

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
    """The layer calls of a run in the order of entering, and its operations."""

    calls: list[Call] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    _open: list[Call] = field(default_factory=list)

    @cached_property
    def needed(self) -> set[int]:
        """The ids of the tensors that the result, or a variable, depends on.

        A trace leaves out what nobody uses; a graph does not run it either.
        """
        found = {id(one) for one in tensors_in(self.calls[0].result)}
        for operation in reversed(self.operations):
            is_read = any(id(one) in found for one in operation.outputs)
            if is_read or operation.type.startswith("Assign"):
                found.update(map(id, operation.inputs))
        return found

    @property
    def wide_products(self) -> Iterator[Operation]:
        """The wide matrix products that are needed."""
        for operation in self.operations:
            if (
                operation.is_product
                and operation.is_wide
                and id(operation.outputs[0]) in self.needed
            ):
                yield operation

    def returns_wide(self, call: Call) -> bool:
        """Tells whether a call returns wide floats that are needed."""
        return any(
            dtype_of(one) in WIDE and id(one) in self.needed for one in tensors_in(call.result)
        )

    def enter(self, layer: keras.layers.Layer, args: Any, kwargs: Any) -> Call:
        """Begins a layer call."""
        call = Call(layer, self._open[-1] if self._open else None, args, kwargs)
        self.calls.append(call)
        self._open.append(call)
        return call

    def leave(self) -> None:
        """Ends the innermost layer call."""
        self._open.pop()

    def see(
        self,
        op_type: Any,
        inputs: Any,
        attrs: Any,
        outputs: Any,
        op_name: Any = None,
        graph: Any = None,
    ) -> None:
        """Takes down an operation; graphs, which Keras infers shapes in, are left out."""
        if graph is None:
            kind = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
            around = self._open[-1] if self._open else None
            self.operations.append(Operation(kind, list(inputs), list(outputs), around))


def dtype_of(value: Any) -> str:
    """Returns the name of a tensor's dtype."""
    return keras.backend.standardize_dtype(value.dtype)


def tensors_in(structure: Any) -> list[Any]:
    """Returns the tensors of a structure."""
    return [one for one in keras.tree.flatten(structure) if hasattr(one, "dtype")]


@contextlib.contextmanager
def seen_eagerly() -> Iterator[EagerRun]:
    """Takes down what layers return while a model runs; all is as before afterwards."""
    run = EagerRun()
    plain = keras.layers.Layer.__call__

    def observed(layer: Any, *args: Any, **kwargs: Any) -> Any:
        call = run.enter(layer, args, kwargs)
        try:
            call.result = plain(layer, *args, **kwargs)
        finally:
            run.leave()
        return call.result

    see = run.see
    keras.layers.Layer.__call__ = observed
    op_callbacks.add_op_callback(see)
    try:
        yield run
    finally:
        op_callbacks.remove_op_callback(see)
        keras.layers.Layer.__call__ = plain
