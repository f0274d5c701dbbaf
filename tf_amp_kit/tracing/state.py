"""Leaving a model as it was, although its Python code ran."""

from __future__ import annotations

import collections
import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.paths import LayerPaths, held_by

_BUILDING_BLOCKS: Final = (keras.layers.Layer, keras.Variable)
_Undo = Callable[[], None]


@contextlib.contextmanager
def undisturbed(paths: LayerPaths) -> Iterator[None]:
    """Restores what running `call` may change, whatever happens.

    That is: random states of Python, NumPy, TensorFlow and Keras, losses that
    layers collected, attributes that `call` set, and the contents of lists,
    dictionaries, sets, queues and arrays that hang on layers. What other objects
    keep inside is theirs. Python's and NumPy's global sequences belong to all
    threads: one that draws meanwhile will draw the same again. A layer that the call built keeps
    what building gave it. Variables are not written while a graph is traced; an
    eager run restores them by `variables_restored`.

    Args:
        paths: The paths of the model's layers.
    """
    layers = [layer for _, layer in paths]
    undo = [_undo_of(layer) for layer in layers]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with _keras.random_state_restored(), _keras.losses_restored(layers):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        for restore in undo:
            restore()


@contextlib.contextmanager
def variables_restored(paths: LayerPaths) -> Iterator[None]:
    """Gives all variables their values back after a `with` block.

    That is: weights, statistics, seed states and metrics of Keras, and TensorFlow's
    own variables and random generators that hang on layers.

    Args:
        paths: The paths of the model's layers.
    """
    restore = _restoring_variables(paths)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def variables_restored_on_failure(paths: LayerPaths) -> Iterator[None]:
    """Gives all variables their values back if a `with` block fails.

    In a graph nothing is written while it is traced, and nothing is restored.

    Args:
        paths: The paths of the model's layers.
    """
    restore = _restoring_variables(paths) if tf.executing_eagerly() else lambda: None
    try:
        yield
    except BaseException:
        restore()
        raise


def _restoring_variables(paths: LayerPaths) -> _Undo:
    found: dict[int, Any] = {}
    for _, layer in paths:
        found.update((id(variable), variable) for variable in layer.variables)
        for _, value in held_by(layer):
            if isinstance(value, keras.metrics.Metric):
                found.update((id(variable), variable) for variable in value.variables)
            own = value.state if isinstance(value, tf.random.Generator) else value
            if isinstance(own, tf.Variable):
                found[id(own)] = own
    # Reading shares the buffer: an assignment then makes a new one, so that only
    # what is written costs memory. A tape of the user's has nothing to do with it, and a
    # layer around it may read what is stored in another dtype.
    with _keras.autocast_scope(None), _keras.no_tape():
        before = [
            (one, tf.convert_to_tensor(one.value if isinstance(one, keras.Variable) else one))
            for one in found.values()
        ]

    def restore() -> None:
        # Keras 3.10 would round what is assigned within a half layer's call.
        with _keras.autocast_scope(None), _keras.no_tape():
            for variable, value in before:
                variable.assign(value)

    return restore


def _undo_of(layer: Any) -> _Undo:
    """Returns what brings a layer back to how it is now."""
    attributes = dict(vars(layer))
    values = (value for _, value in held_by(layer))
    undo = [one for value in values for one in [_undo_of_value(value)] if one is not None]

    def restore() -> None:
        # Past Keras's `__setattr__`, which would track the values anew.
        current = vars(layer)
        if current.get("built") != attributes.get("built"):
            return
        made = {
            name: value
            for name, value in current.items()
            if value is not attributes.get(name) and isinstance(value, _BUILDING_BLOCKS)
        }
        for name in set(current) - set(attributes):
            del current[name]
        # Keras tracks what a first call made: it stays, as it would have.
        current.update(attributes | made)
        for one in undo:
            one()

    return restore


def _undo_of_value(value: Any) -> _Undo | None:
    # By type: wrappers only pretend to be a list or a dictionary.
    if issubclass(type(value), list):
        items = list(value)
        return lambda: list.__setitem__(value, slice(None), items)
    if issubclass(type(value), dict):
        pairs = dict(value)
        return lambda: _refill(dict, value, pairs)
    if issubclass(type(value), set):
        members = set(value)
        return lambda: _refill(set, value, members)
    if isinstance(value, collections.deque):
        queued = list(value)
        return lambda: _requeue(value, queued)
    if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype != object:
        numbers = value.copy()
        return lambda: np.copyto(value, numbers)
    if isinstance(value, random.Random):
        state = value.getstate()
        return lambda: value.setstate(state)
    if isinstance(value, np.random.RandomState):
        old = value.get_state()
        return lambda: value.set_state(old)
    if isinstance(value, np.random.Generator):
        bits, bit_state = value.bit_generator, copy.deepcopy(value.bit_generator.state)
        return lambda: setattr(bits, "state", bit_state)
    return None


def _requeue(queue: Any, items: list[Any]) -> None:
    queue.clear()
    queue.extend(items)


def _refill(kind: Any, container: Any, contents: Any) -> None:
    # Past the methods of Keras's own containers, which would track the contents anew.
    kind.clear(container)
    kind.update(container, contents)
