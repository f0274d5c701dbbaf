"""Arithmetic on symbolic tensors, outside any layer."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers, ops

from . import places
from .expect import Case, Expected
from .faults import WIDTH


def _model(inputs, hidden) -> keras.Model:
    return keras.Model(inputs, places.head()(hidden))


def times_scalar(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = hidden * np.float32(2)  # PLANTED
    return _model(inputs, layers.Dense(WIDTH)(hidden))


def plus_array(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = ops.add(hidden, np.ones(WIDTH, "float32"))  # PLANTED
    return _model(inputs, hidden)


def times_double(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = ops.multiply(hidden, np.ones(WIDTH))  # PLANTED
    return _model(inputs, hidden)


def joined_with_inputs(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = ops.concatenate([hidden, inputs])  # PLANTED
    return _model(inputs, layers.Dense(WIDTH)(hidden))


def plus_pinned(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    pinned = layers.Dense(WIDTH, dtype="float32")(hidden)
    hidden = hidden + pinned  # PLANTED
    return _model(inputs, layers.Dense(WIDTH)(hidden))


def times_matrix(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = ops.matmul(hidden, np.eye(WIDTH, dtype="float32"))  # PLANTED
    return _model(inputs, hidden)


def cast_up(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = ops.cast(hidden, "float32")  # PLANTED
    return _model(inputs, layers.Dense(WIDTH)(hidden))


def patches_of_inputs(half: str) -> keras.Model:
    inputs = keras.Input((6, 6, 3))
    hidden = ops.image.extract_patches(inputs, 2)  # PLANTED
    return _model(inputs, layers.Flatten()(layers.Dense(4)(hidden)))


def in_nested_model(half: str) -> keras.Model:
    inner = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inner)
    hidden = hidden * np.float32(2)  # PLANTED
    block = keras.Model(inner, layers.Dense(WIDTH)(hidden), name="block")
    inputs = keras.Input((WIDTH,))
    return _model(inputs, block(inputs))


def passed_on(half: str) -> keras.Model:
    """One operation widens; those after it only carry the wide tensor."""
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = hidden * np.float32(2)  # PLANTED
    hidden = ops.reshape(ops.relu(hidden) + 1.0, (-1, 2, 4))
    return _model(inputs, layers.Flatten()(hidden))


class OwnCall(keras.Model):
    """The model's own `call` widens between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = layers.Dense(8), layers.Dense(8), places.head()

    def call(self, inputs):
        hidden = self.first(inputs)
        hidden = ops.multiply(hidden, np.ones(8, "float32"))  # PLANTED
        return self.head(self.second(hidden))


def own_call(half: str) -> keras.Model:
    model = OwnCall()
    model(np.zeros((2, WIDTH), "float32"))
    return model


# Controls


def _plain(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = ops.relu(hidden * 2.0 + 1)
    return _model(inputs, ops.concatenate([hidden, hidden]))


def _keras_add(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    pinned = layers.Dense(WIDTH, dtype="float32")(hidden)
    return _model(inputs, layers.Concatenate()([layers.Add()([hidden, pinned]), inputs]))


def _cast_down(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    return _model(inputs, ops.concatenate([hidden, ops.cast(inputs, half)]))


def _after_head(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    logits = places.head()(layers.Dense(WIDTH)(inputs))
    return keras.Model(inputs, ops.softmax(logits))


def _found(build, path: str) -> list[Case]:
    tolerated = frozenset({"AMP102"}) if build is times_double else frozenset()
    name = build.__name__.replace("_", " ")
    return [
        Case(f"{name}, built before", build, (Expected("AMP105", path),), tolerated=tolerated),
        Case(
            f"{name}, built by the audit",
            build,
            (Expected("AMP105", path, planted=build),),
            as_builder=True,
            tolerated=tolerated,
        ),
    ]


OUTSIDE_LAYERS = [
    *_found(times_scalar, "@multiply"),
    *_found(plus_array, "@add"),
    *_found(times_double, "@multiply"),
    *_found(joined_with_inputs, "@concatenate"),
    *_found(plus_pinned, "@add"),
    *_found(times_matrix, "@matmul"),
    *_found(cast_up, "@cast"),
    *_found(patches_of_inputs, "@extract_patches"),
    *_found(in_nested_model, "block/@multiply"),
    *_found(passed_on, "@multiply"),
    # The model is a layer and not one: its own operation may be told either way.
    Case(
        "in the call of a subclassed model",
        own_call,
        (Expected(("AMP101", "AMP105"), "", below=True, planted=OwnCall),),
    ),
    Case("Python numbers do not widen", _plain),
    Case("Keras's merging layers cast down", _keras_add),
    Case("inputs cast down by hand", _cast_down),
    Case("softmax after a float32 head", _after_head),
]
