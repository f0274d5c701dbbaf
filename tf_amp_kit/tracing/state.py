"""Leaving a model as it was, although its Python code ran."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.paths import LayerPaths

_ABSENT: Final = object()
_Undo = Callable[[], None]


@contextlib.contextmanager
def undisturbed(paths: LayerPaths) -> Iterator[None]:
    """Restores what running `call` may change, whatever happens.

    That is: random states of Python, NumPy, TensorFlow and Keras, losses that
    layers collected, attributes that `call` set, and the contents of lists,
    dictionaries and sets that hang on layers. A layer that the call built keeps
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

    That is: weights, statistics and seed states of Keras, and TensorFlow's own
    variables and random generators that hang on layers.

    Args:
        paths: The paths of the model's layers.
    """
    found: dict[int, Any] = {}
    for _, layer in paths:
        found.update((id(variable), variable) for variable in layer.variables)
        for value in _held(vars(layer).values()):
            own = value.state if isinstance(value, tf.random.Generator) else value
            if isinstance(own, tf.Variable):
                found[id(own)] = own
    # Reading shares the buffer: an assignment then makes a new one, so that only
    # what is written costs memory.
    before = [
        (one, tf.convert_to_tensor(one.value if isinstance(one, keras.Variable) else one))
        for one in found.values()
    ]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)


def _undo_of(layer: Any) -> _Undo:
    """Returns what brings a layer back to how it is now."""
    attributes = dict(vars(layer))
    values = [v for name, v in attributes.items() if not _keras.is_bookkeeping(name)]
    undo = [one for value in _held(values) for one in [_undo_of_value(value)] if one is not None]

    def restore() -> None:
        # Past Keras's `__setattr__`, which would track the values anew.
        current = vars(layer)
        if current.get("built") != attributes.get("built"):
            return
        for name in list(current):
            old = attributes.get(name, _ABSENT)
            if old is _ABSENT:
                del current[name]
            else:
                current[name] = old
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


def _refill(kind: Any, container: Any, contents: Any) -> None:
    # Past the methods of Keras's own containers, which would track the contents anew.
    kind.clear(container)
    kind.update(container, contents)


def _held(values: Iterable[Any]) -> Iterator[Any]:
    """Yields values, and all that containers among them hold, containers first."""
    seen: set[int] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list | tuple | set):
            pending.extend(value)
