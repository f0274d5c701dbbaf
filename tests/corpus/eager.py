"""What a model does in an eager run, seen without the package: dtypes, layer by layer.

Shares no code with `tf_amp_kit`. Layer calls, and Keras's operations between layers, are
seen by replacing `__call__`, TensorFlow's operations by its callback for eager ones. Each
wide float is followed back to the call whose code made it, of half precision or of nothing.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework import op_callbacks

__all__ = ["EagerRun", "LayerRun", "run_eagerly"]

HALF = ("float16", "bfloat16")
WIDE = ("float32", "float64")
PRODUCTS = (
    "BatchMatMul",
    "BatchMatMulV2",
    "BatchMatMulV3",
    "Conv2D",
    "Conv2DBackpropInput",
    "Conv3D",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative",
    "Einsum",
    "MatMul",
)


@dataclass(eq=False)
class LayerRun:
    """One call of a layer, or of an operation of Keras between layers.

    Attributes:
        layer: The layer or operation.
        outer: The call around it.
        compute_dtype: What its policy says; the outer one's for an operation.
        count: How many operations of its class the outer call ran before.
        outputs: The dtypes of the floats that it returned.
        widened: Whether a wide float among them comes from its own code alone.
        had_half: Whether an operation of its own code got a half tensor.
        wide_products: Matrix products that ran in float32 in its own code.
        counts: How many operations of each class it ran.
        returned: The identities of the tensors that it returned.
    """

    layer: Any
    outer: LayerRun | None
    compute_dtype: str
    count: int = 0
    outputs: tuple[str, ...] = ()
    widened: bool = False
    had_half: bool = False
    wide_products: list[str] = field(default_factory=list)
    counts: Counter[type] = field(default_factory=Counter)
    returned: frozenset[int] = frozenset()

    @property
    def is_operation(self) -> bool:
        return not isinstance(self.layer, keras.layers.Layer)

    @property
    def is_half(self) -> bool:
        return self.compute_dtype in HALF

    @property
    def is_model(self) -> bool:
        return isinstance(self.layer, keras.Model)

    def around(self) -> Iterator[LayerRun]:
        """Yields the call itself and those around it, the innermost first."""
        one: LayerRun | None = self
        while one is not None:
            yield one
            one = one.outer


@dataclass(eq=False)
class EagerRun:
    """One call of a model.

    Attributes:
        calls: The layer calls in the order of entering.
        outputs: The dtypes of what the model returned.
        failed: The innermost layer that raised, or None.
        error: What it raised.
    """

    calls: list[LayerRun] = field(default_factory=list)
    outputs: tuple[str, ...] = ()
    failed: Any = None
    error: str = ""
    _open: list[LayerRun] = field(default_factory=list)
    # The calls whose code made a tensor wide, by the tensor's identity; tensors stay
    # alive, so that no identity comes twice.
    _makers: dict[int, frozenset[int]] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)

    def call(self, original: Any, layer: Any, args: Any, kwargs: Any) -> Any:
        outer = self._open[-1] if self._open else None
        own = layer if isinstance(layer, keras.layers.Layer) else outer.layer
        one = LayerRun(layer, outer, own.compute_dtype)
        if outer is not None:
            one.count = outer.counts[type(layer)]
            outer.counts[type(layer)] += 1
        self.calls.append(one)
        self._open.append(one)
        try:
            outputs = original(layer, *args, **kwargs)
        except Exception:
            if self.failed is None:
                self.failed = layer
            raise
        finally:
            self._open.pop()
        tensors = [value for value in tf.nest.flatten(outputs) if isinstance(value, tf.Tensor)]
        one.returned = frozenset(map(id, tensors))
        self._alive += tensors
        one.outputs = tuple(value.dtype.name for value in tensors if value.dtype.is_floating)
        one.widened = any(
            self._makers.get(id(value)) == {id(one)}
            for value in tensors
            if value.dtype.name in WIDE
        )
        return outputs

    def operation(
        self,
        op_type: Any,
        inputs: Any,
        attrs: Any,
        outputs: Any,
        *_: Any,
        graph: Any = None,
        **__: Any,
    ) -> None:
        op_type = op_type.decode() if isinstance(op_type, bytes) else op_type
        here = self._open[-1] if self._open else None
        wide = [value for value in inputs if value.dtype.name in WIDE]
        has_half = any(value.dtype.name in HALF for value in inputs)
        inherited = frozenset().union(*(self._makers.get(id(value), ()) for value in wide))
        if here is not None and op_type in PRODUCTS and wide and not has_half:
            here.wide_products.append(op_type)
        if graph is not None:  # of a function that Keras makes for one operation
            return
        if here is not None:
            here.had_half |= has_half
        for value in outputs:
            if value.dtype.name in WIDE and here is not None:
                own = {id(here)} if has_half or not inherited else ()
                self._makers[id(value)] = inherited | frozenset(own)
                self._alive.append((value, here))


@contextlib.contextmanager
def _watched(run: EagerRun) -> Iterator[None]:
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
    op_callbacks.add_op_callback(run.operation)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(run.operation)
        keras.layers.Layer.__call__, keras.Operation.__call__ = of_layers, of_operations


def run_eagerly(model: keras.Model, batch: Any, *, training: bool) -> EagerRun:
    """Calls a model on a batch, and tells what its layers really returned.

    Args:
        model: A built model; its statistics and seeds move on.
        batch: Its argument.
        training: What `training` is.
    """
    run = EagerRun()
    with _watched(run):
        try:
            outputs = model(batch, training=training)
        except Exception as error:
            run.error = f"{type(error).__name__}: {error}"
            return run
    floats = [value for value in tf.nest.flatten(outputs) if isinstance(value, tf.Tensor)]
    run.outputs = tuple(value.dtype.name for value in floats if value.dtype.is_floating)
    return run
