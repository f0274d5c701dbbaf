"""A call traced into a graph that never runs, in which a missing kernel raises at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.conflicts import KernelNotFound
from tf_amp_kit.tracing.kernels import default_device_type, missing_half_kernel
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.recorder import is_plain_tensor
from tf_amp_kit.tracing.state import undisturbed

__all__ = ["is_kept_graph", "rehearsed", "spec_of"]


def rehearsed(model: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """Traces a call of a model that is built, and leaves the model as it was.

    Args:
        model: The model.
        call: Makes the call, with the arguments as tensors of a graph.
        args: The arguments: tensors and arrays, or `tf.TypeSpec`s, and what is neither.
        kwargs: Likewise, by name.

    Raises:
        KernelNotFound: Where an operation is made that half precision has no kernel for.
        Exception: Whatever the call raises.
    """
    leaves = keras.tree.flatten((args, kwargs))
    masks = [_keras.mask_of(leaf) for leaf in leaves]
    specs = [spec_of(leaf) for leaf in (*leaves, *masks)]
    given = [spec for spec in specs if spec is not None]
    device_type, is_compiled = default_device_type(), _keras.is_compiled_by_xla()

    def traced(*tensors: Any) -> None:
        rest = iter(tensors)
        whole = [
            value if spec is None else next(rest)
            for value, spec in zip((*leaves, *masks), specs, strict=True)
        ]
        for tensor, mask in zip(whole, whole[len(leaves) :], strict=False):
            if mask is not None:
                _keras.set_mask(tensor, mask)
        again = keras.tree.pack_sequence_as((args, kwargs), whole[: len(leaves)])
        with _keras.context_value(_rehearsed_in, tf.compat.v1.get_default_graph()):
            call(*again[0], **again[1])

    def refuse(op_type: str, inputs: Any, attrs: Any, *_: Any, **__: Any) -> None:
        pairs = iter(attrs or ())  # names and values, one after the other
        values = dict(zip(pairs, pairs, strict=False))
        dtype = missing_half_kernel(op_type, lambda name: _dtype_of(values.get(name)), device_type)
        if dtype is not None and not is_compiled:
            raise KernelNotFound.of(op_type, dtype, device_type)

    with (
        tf.init_scope(),  # a function that is being traced would lift variables its own way
        undisturbed(LayerPaths(model)),
        _keras.op_callbacks_off(),
        _keras.eager_operations_seen(refuse),
    ):
        _keras.trace_to_graph(traced, given, {})


# The graph that a rehearsal is traced into, and that is thrown away.
_rehearsed_in: ContextVar[Any] = ContextVar("rehearsed_in", default=None)


def is_kept_graph() -> bool:
    """Tells whether a graph is being traced that its function keeps, and will run."""
    if tf.executing_eagerly() or _keras.is_stateless():
        return False
    return _keras.traced_function_graph() is not _rehearsed_in.get()


def spec_of(value: Any) -> Any:
    """Returns the spec of what is a tensor or can be one, else None."""
    if isinstance(value, tf.TypeSpec):
        return value
    if is_plain_tensor(value):
        return tf.type_spec_from_value(value)
    with contextlib.suppress(AttributeError, TypeError, ValueError):  # objects of others
        return tf.TensorSpec(value.shape, value.dtype)
    return None


def _dtype_of(value: Any) -> Any:
    """Reads an attribute that is a dtype, of a graph's operation or of one that ran eagerly."""
    number = getattr(value, "type", value)
    return tf.as_dtype(number) if number else None
