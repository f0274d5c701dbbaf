"""Private names about global random state."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np


class _OtherSequence:
    """Draws from a sequence of its own for one thread, from the original for others.

    Each seed that is drawn starts a kernel that stays and goes on. Seeds of another
    sequence leave the kernels of the user's own alone.
    """

    def __init__(self, original: Any) -> None:
        self.original = original
        self._own = random.Random(__name__)
        self._thread: int | None = threading.get_ident()

    def release(self) -> None:
        """Draws from the original for all threads from now on."""
        self._thread = None

    def __getattr__(self, name: str) -> Any:
        is_own = threading.get_ident() == self._thread
        return getattr(self._own if is_own else self.original, name)


@contextlib.contextmanager
def random_state_restored() -> Iterator[None]:
    """Keeps what a `with` block draws out of TensorFlow's, Keras's and Python's sequences.

    Layers with a seed draw one from Python's `random` when they are made. Uses
    `tensorflow.python.eager.context.context()._rng`, from which eager random operations of
    all threads draw their seeds, and Keras's `global_seed_generator`: both have only
    setters that start a new sequence.
    """
    from keras.src.backend.common import global_state
    from tensorflow.python.eager import context

    tf_context = context.context()
    original = getattr(tf_context, "_rng", None)
    other = None if original is None else _OtherSequence(original)
    if other is not None:
        tf_context._rng = other
    keras_generator = global_state.get_global_attribute("global_seed_generator")
    keras_seed = None if keras_generator is None else keras_generator.state.numpy()
    python_state = random.getstate()
    try:
        yield
    finally:
        random.setstate(python_state)
        if other is not None:
            other.release()
            if tf_context._rng is other:  # else a look in another thread came later
                tf_context._rng = original
        if keras_generator is None or keras_seed is None:
            global_state.set_global_attribute("global_seed_generator", None)
        # A function that makes variables in its first trace has not filled them yet.
        elif keras_seed.shape == keras_generator.state.shape:
            keras_generator.state.assign(keras_seed)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds all global sequences for a `with` block, and gives them back afterwards.

    Uses `tensorflow.python.eager.context.context()._seed` and `_rng`, and the global
    state of Keras that `keras.utils.set_random_seed` sets: there is no public way to read
    either, or to go on with a sequence that was left.

    Args:
        seed: What `keras.utils.set_random_seed` takes.
    """
    from keras.src.backend.common import global_state
    from tensorflow.python.eager import context

    tf_context = context.context()
    before = getattr(tf_context, "_seed", None), getattr(tf_context, "_rng", None)
    names = ("global_random_seed", "global_seed_generator")
    of_keras = {name: global_state.get_global_attribute(name) for name in names}
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        keras.utils.set_random_seed(seed)
        # Keras 3.10 goes on with the generator that it has.
        global_state.set_global_attribute("global_seed_generator", None)
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        tf_context._seed, tf_context._rng = before
        for name, value in of_keras.items():
            global_state.set_global_attribute(name, value)
