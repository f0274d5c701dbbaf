"""What a model does in an eager run, seen without the package: dtypes, layer by layer.

Shares no code with `tf_amp_kit`. Layer calls are seen by replacing `Layer.__call__`, and
operations by TensorFlow's callback for eager ones. Each wide float is followed back to
where it became wide: `made` by a layer's own code out of half precision or of nothing.
"""

from __future__ import annotations

import contextlib
import functools
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
    """One call of a layer.

    Attributes:
        layer: The layer.
        outer: The call around it.
        compute_dtype: What its policy says.
        outputs: The dtypes of the floats that it returned.
        widened: Whether a wide float among them comes from its own code alone.
        wide_products: Matrix products that ran in float32 in its own code.
    """

    layer: Any
    outer: LayerRun | None
    compute_dtype: str
    outputs: tuple[str, ...] = ()
    widened: bool = False
    wide_products: list[str] = field(default_factory=list)

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
        one = LayerRun(layer, outer, layer.compute_dtype)
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
        tensors = [value for value in tf.nest.flatten(outputs) if tf.is_tensor(value)]
        one.outputs = tuple(value.dtype.name for value in tensors if value.dtype.is_floating)
        one.widened = any(
            self._makers.get(id(value)) == {id(one)}
            for value in tensors
            if value.dtype.name in WIDE
        )
        return outputs

    def operation(self, op_type: Any, inputs: Any, attrs: Any, outputs: Any, *_: Any) -> None:
        op_type = op_type.decode() if isinstance(op_type, bytes) else op_type
        here = self._open[-1] if self._open else None
        wide = [value for value in inputs if value.dtype.name in WIDE]
        has_half = any(value.dtype.name in HALF for value in inputs)
        inherited = frozenset().union(*(self._makers.get(id(value), ()) for value in wide))
        for value in outputs:
            if value.dtype.name in WIDE and here is not None:
                own = {id(here)} if has_half or not inherited else ()
                self._makers[id(value)] = inherited | frozenset(own)
                self._alive.append((value, here))
        if here is not None and op_type in PRODUCTS and wide and not has_half:
            here.wide_products.append(op_type)


@contextlib.contextmanager
def _watched(run: EagerRun) -> Iterator[None]:
    original = keras.layers.Layer.__call__

    @functools.wraps(original)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return run.call(original, layer, args, kwargs)

    keras.layers.Layer.__call__ = call
    op_callbacks.add_op_callback(run.operation)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(run.operation)
        keras.layers.Layer.__call__ = original


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
    floats = [value for value in tf.nest.flatten(outputs) if tf.is_tensor(value)]
    run.outputs = tuple(value.dtype.name for value in floats if value.dtype.is_floating)
    return run
