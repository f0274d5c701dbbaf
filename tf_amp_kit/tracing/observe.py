"""Watching layers being called, in this thread, and leaving nothing behind."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import keras

from tf_amp_kit import _keras
from tf_amp_kit.tracing.recorder import Recorder, current_frames
from tf_amp_kit.tracing.source import Source, source_of

_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)

# Where operations between layers were written down, if their build was observed:
# a graph model runs them later, far from that line.
_written_at: WeakKeyDictionary[Any, Source] = WeakKeyDictionary()


def is_observed() -> bool:
    """Tells whether this thread's layer calls are being recorded."""
    return _recorder.get() is not None


def written_at(operation: Any) -> Source | None:
    """Returns the line that made an operation, if its build was observed."""
    return _written_at.get(operation)


def _observe_calls(original: Any, *, but_layers: bool = False) -> Any:
    @functools.wraps(original)
    def observed_call(operation: Any, /, *args: Any, **kwargs: Any) -> Any:
        recorder = _recorder.get()
        if recorder is None or (but_layers and isinstance(operation, keras.layers.Layer)):
            return original(operation, *args, **kwargs)
        return recorder.run(operation, original, args, kwargs)

    return observed_call


# A layer passes through its base class a second time, by way of `super()`.
_observe_operations = functools.partial(_observe_calls, but_layers=True)


def _observe_symbolic_calls(original: Any) -> Any:
    @functools.wraps(original)
    def symbolic_call(operation: Any, /, *args: Any, **kwargs: Any) -> Any:
        recorder = _recorder.get()
        if recorder is not None and not isinstance(operation, keras.layers.Layer):
            source = source_of(current_frames())
            if source is not None:
                _written_at[operation] = source
        return original(operation, *args, **kwargs)

    return symbolic_call


def _observe_losses(original: Any) -> Any:
    @functools.wraps(original)
    def add_loss(layer: Any, loss: Any) -> Any:
        recorder = _recorder.get()
        if recorder is not None:
            recorder.add_loss(layer, loss)
        return original(layer, loss)

    return add_loss


_PATCHES = (
    _keras.ClassPatch(keras.layers.Layer, "__call__", _observe_calls),
    _keras.ClassPatch(keras.Operation, "__call__", _observe_operations),
    _keras.ClassPatch(keras.Operation, "symbolic_call", _observe_symbolic_calls),
    _keras.ClassPatch(keras.layers.Layer, "add_loss", _observe_losses),
)


@contextlib.contextmanager
def observing(recorder: Recorder) -> Iterator[Recorder]:
    """Records every layer call that this thread makes inside a `with` block.

    Other threads are unaffected, and the classes are as before afterwards,
    whatever happens inside.

    Args:
        recorder: Takes the record.

    Yields:
        The recorder.
    """
    with contextlib.ExitStack() as stack:
        for patch in _PATCHES:
            stack.enter_context(patch.installed())
        stack.enter_context(_keras.functions_inlined())
        stack.enter_context(_keras.full_tracebacks())
        stack.enter_context(_keras.context_value(_recorder, recorder))
        yield recorder


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Leaves what this thread does in a `with` block out of the record."""
    with _keras.context_value(_recorder, None):
        yield
