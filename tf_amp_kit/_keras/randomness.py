"""Private names about global random state."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator


@contextlib.contextmanager
def random_state_restored() -> Iterator[None]:
    """Gives TensorFlow and Keras their global random state back, for this thread.

    Uses `tensorflow.python.eager.context.context()._rng`, from which eager random
    operations draw, and Keras's `global_seed_generator`: both have only setters
    that start a new sequence.
    """
    from keras.src.backend.common import global_state
    from tensorflow.python.eager import context

    tf_context = context.context()
    generator = getattr(tf_context, "_rng", None)
    if generator is not None:
        # Each seed that is drawn starts a kernel that stays and goes on. Seeds of
        # another sequence leave the kernels of the user's own alone.
        tf_context._rng = random.Random(__name__)
    keras_generator = global_state.get_global_attribute("global_seed_generator")
    keras_seed = None if keras_generator is None else keras_generator.state.numpy()
    try:
        yield
    finally:
        if generator is not None:
            tf_context._rng = generator
        if keras_generator is not None:
            keras_generator.state.assign(keras_seed)
        else:
            global_state.set_global_attribute("global_seed_generator", None)
