"""Private names of TensorFlow about which operation a gradient is of."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import tensorflow as tf

from tf_amp_kit._keras.patching import ClassPatch, context_value

_remembering: ContextVar[bool] = ContextVar("remembering", default=False)


def no_tape() -> contextlib.AbstractContextManager[Any]:
    """Hides what runs in a `with` block from all tapes.

    Uses `tensorflow.python.eager.record.stop_recording`: the public name is a method of a
    tape, and others may be open.
    """
    from tensorflow.python.eager import record

    return record.stop_recording()  # type: ignore[no-any-return]


class _AttributesOf(tuple[Any, ...]):
    """The attributes of an operation as a tape keeps them, and the operation."""

    operation: Any = None


def _make_record(original: Any) -> Any:
    def record_gradient(op_name: Any, inputs: Any, attributes: Any, outputs: Any) -> Any:
        if _remembering.get():
            made = [one for one in tf.nest.flatten(outputs) if tf.is_symbolic_tensor(one)]
            attributes = _AttributesOf(attributes or ())
            attributes.operation = made[0].op if made else None
        return original(op_name, inputs, attributes, outputs)

    return record_gradient


def _make_record_function(original: Any) -> Any:
    names = inspect.signature(original)

    def record_operation(*args: Any, **kwargs: Any) -> Any:
        if not _remembering.get():
            return original(*args, **kwargs)
        bound = names.bind(*args, **kwargs)
        outputs = tf.nest.flatten(bound.arguments["output_tensors"])
        made = [one for one in outputs if tf.is_symbolic_tensor(one)]
        if made:
            backward = bound.arguments["backward_function"]
            bound.arguments["backward_function"] = functools.partial(
                _call_with_original, made[0].op, backward
            )
        return original(*bound.args, **bound.kwargs)

    return record_operation


def _make_lookup(original: Any) -> Any:
    def lookup(registry: Any, name: Any) -> Any:
        function = original(registry, name)
        if not _remembering.get() or function is None or registry is not _gradient_registry():
            return function
        return functools.partial(_with_original, function)

    return lookup


def _with_original(function: Any, op: Any, *gradients: Any) -> Any:
    # In the body of a loop the operation itself; of a tape only what it kept.
    is_real = isinstance(op, tf.Operation)
    forward = op if is_real else getattr(getattr(op, "attrs", None), "operation", None)
    if forward is None:
        return function(op, *gradients)
    return _call_with_original(forward, function, op, *gradients)


def _call_with_original(forward: Any, function: Any, *args: Any) -> Any:
    with tf.compat.v1.get_default_graph()._original_op(forward):
        return function(*args)


def _gradient_registry() -> Any:
    from tensorflow.python.framework import ops

    return ops.gradient_registry


def _execute_module() -> Any:
    from tensorflow.python.eager import execute

    return execute


def _record_module() -> Any:
    from tensorflow.python.eager import record

    return record


_function_patch = ClassPatch(_record_module(), "record_operation", _make_record_function)
_record_patch = ClassPatch(_execute_module(), "record_gradient", _make_record)
_lookup_patch = ClassPatch(type(_gradient_registry()), "lookup", _make_lookup)


@contextlib.contextmanager
def originals_remembered() -> Iterator[None]:
    """Makes operations of gradients remember which operation each is the gradient of.

    Uses `execute.record_gradient`, `record.record_operation` (for gradients that
    users write), `ops.gradient_registry` with its `lookup`, and
    `Graph._original_op`: no public name tells, and the scopes in the names of
    operations only tell the layer.
    """
    with (
        _function_patch.installed(),
        _record_patch.installed(),
        _lookup_patch.installed(),
        context_value(_remembering, True),
    ):
        yield


def original_operation(op: Any) -> Any:
    """Returns the operation that another one is part of the gradient of, or None.

    Uses `Operation._original_op`, for the reason that `originals_remembered` has.
    """
    return getattr(op, "_original_op", None)
