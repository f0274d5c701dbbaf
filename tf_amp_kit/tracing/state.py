"""Leaving a model as it was, although its Python code ran."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.paths import LayerPaths

_PLAIN_TYPES: Final = (bool, int, float, complex, str, bytes, type(None))
_ABSENT: Final = object()


@contextlib.contextmanager
def undisturbed(paths: LayerPaths) -> Iterator[None]:
    """Restores what running `call` may change, whatever happens.

    That is: random states of Python, NumPy, TensorFlow and Keras, losses that
    layers collected, and attributes that `call` set to numbers, strings or
    tensors of the trace. Variables are not written while a graph is traced; an
    eager run restores them by `variables_restored`.

    Args:
        paths: The paths of the model's layers.
    """
    layers = [layer for _, layer in paths]
    before = [(layer, dict(vars(layer))) for layer in layers]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with _keras.random_state_restored(), _keras.losses_restored(layers):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for layer, attributes in before:
            _restore(layer, attributes)


@contextlib.contextmanager
def variables_restored(variables: list[Any]) -> Iterator[None]:
    """Gives variables their values back after a `with` block.

    Args:
        variables: Keras variables: statistics and seed states.
    """
    before = [(variable, variable.numpy()) for variable in variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


def _restore(layer: Any, attributes: dict[str, Any]) -> None:
    # Past Keras's `__setattr__`, which would track the value anew.
    current = vars(layer)
    if current.get("built") != attributes.get("built"):
        return  # the call built it: its variables exist now, and stay
    for name in list(current):
        old, new = attributes.get(name, _ABSENT), current[name]
        if new is old or not _is_trace_of_a_call(new):
            continue
        if old is _ABSENT:
            del current[name]
        else:
            current[name] = old


def _is_trace_of_a_call(value: Any) -> bool:
    if isinstance(value, _PLAIN_TYPES):
        return True
    return any(tf.is_symbolic_tensor(item) for item in tf.nest.flatten(value))
