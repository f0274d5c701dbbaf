"""Where a layer can sit: models around one layer, with the layer's path.

Each place is a function of `make`, which makes the layer (`make(name="fault")`),
and returns a built model of vectors of 8 numbers with a float32 head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from .faults import WIDTH

Make = Callable[..., Any]


def head() -> layers.Layer:
    return layers.Dense(3, dtype="float32", name="head")


def in_functional(make: Make) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    hidden = layers.Dense(WIDTH)(make(name="fault")(hidden))
    return keras.Model(inputs, head()(hidden))


def in_sequential(make: Make) -> keras.Model:
    return keras.Sequential(
        [keras.Input((WIDTH,)), layers.Dense(WIDTH), make(name="fault"), layers.ReLU(), head()]
    )


def in_nested_sequential(make: Make) -> keras.Model:
    block = keras.Sequential(
        [keras.Input((WIDTH,)), layers.Dense(WIDTH), make(name="fault")], name="block"
    )
    return keras.Sequential([keras.Input((WIDTH,)), layers.Dense(WIDTH), block, head()])


def in_nested_functional(make: Make) -> keras.Model:
    inner = keras.Input((WIDTH,))
    block = keras.Model(inner, layers.Dense(WIDTH)(make(name="fault")(inner)), name="block")
    outer = keras.Input((WIDTH,))
    return keras.Model(outer, head()(block(layers.Dense(WIDTH)(outer))))


def under_automatic_name(make: Make) -> keras.Model:
    """The layers before it move Keras's counters; the path must not see them."""
    layers.Dense(2), layers.Dense(2)
    block = keras.Sequential([keras.Input((WIDTH,)), layers.Dense(WIDTH), make(name="fault")])
    return keras.Sequential([keras.Input((WIDTH,)), block, head()])


class Stack(keras.Model):
    """Holds its layers in a list under a private name."""

    def __init__(self, make: Make):
        super().__init__()
        self._blocks = [layers.Dense(WIDTH), make(name="fault"), layers.Dense(WIDTH)]
        self.head = head()

    def call(self, inputs):
        for block in self._blocks:
            inputs = block(inputs)
        return self.head(inputs)


class Table(Stack):
    """Holds its layers in a dict."""

    def __init__(self, make: Make):
        keras.Model.__init__(self)
        self.parts = {"first": layers.Dense(WIDTH), "second": make(name="fault")}
        self.head = head()

    def call(self, inputs):
        return self.head(self.parts["second"](self.parts["first"](inputs)))


def _called(model: keras.Model) -> keras.Model:
    model(np.zeros((2, WIDTH), "float32"))
    return model


def in_subclassed_list(make: Make) -> keras.Model:
    return _called(Stack(make))


def in_subclassed_dict(make: Make) -> keras.Model:
    return _called(Table(make))


class Wrapped(layers.Layer):
    """A custom layer that owns one other layer."""

    def __init__(self, make: Make, **kwargs):
        super().__init__(**kwargs)
        self.part = make(name="fault")

    def build(self, input_shape):
        self.part.build(input_shape)

    def call(self, inputs):
        return ops.relu(self.part(inputs))


class ByKeyword(Wrapped):
    """Passes the input by its name."""

    def call(self, inputs):
        return ops.cast(self.part(inputs=inputs), self.compute_dtype)


class CastsBack(Wrapped):
    """Nothing outside shows what the part did."""

    def call(self, inputs):
        return ops.cast(self.part(inputs), self.compute_dtype)


class Loops(Wrapped):
    """Calls its part in the body of a while loop."""

    def call(self, inputs):
        def step(index, state):
            return index + 1, ops.cast(self.part(state), state.dtype)

        return ops.while_loop(lambda index, state: index < 3, step, (0, inputs))[1]


class Box:
    """A plain object that Keras does not look into."""

    def __init__(self, layer):
        self.layer = layer


class Boxed(layers.Layer):
    """Keeps its layer where Keras does not track it."""

    def __init__(self, make: Make, **kwargs):
        super().__init__(**kwargs)
        self.box = Box(make(name="fault"))

    def call(self, inputs):
        return ops.cast(self.box.layer(inputs), self.compute_dtype)


class MadeInCall(layers.Layer):
    """Makes its layer anew in every call."""

    def __init__(self, make: Make, **kwargs):
        super().__init__(**kwargs)
        self._make = make

    def call(self, inputs):
        return ops.cast(self._make(name="fault")(inputs), self.compute_dtype)


def _around(outer: type) -> Callable[[Make], keras.Model]:
    def build(make: Make) -> keras.Model:
        inputs = keras.Input((WIDTH,))
        hidden = outer(make, name="outer")(layers.Dense(WIDTH)(inputs))
        return keras.Model(inputs, head()(hidden))

    return build


def in_time_distributed(make: Make) -> keras.Model:
    inputs = keras.Input((5, WIDTH))
    layer = make(name="fault")
    # The wrapper refuses layers that do not say their output shape.
    layer.compute_output_shape = tuple
    hidden = layers.TimeDistributed(layer)(layers.Dense(WIDTH)(inputs))
    return keras.Model(inputs, head()(hidden))


def shared(make: Make) -> keras.Model:
    left, right = keras.Input((WIDTH,), name="left"), keras.Input((WIDTH,), name="right")
    layer = make(name="fault")
    both = layers.Concatenate()([layer(layers.Dense(WIDTH)(left)), layer(right)])
    return keras.Model([left, right], head()(both))


def in_dict_model(make: Make) -> keras.Model:
    inputs = {"a": keras.Input((WIDTH,), name="a"), "b": keras.Input((WIDTH,), name="b")}
    hidden = layers.Add()([layers.Dense(WIDTH)(inputs["a"]), layers.Dense(WIDTH)(inputs["b"])])
    changed = make(name="fault")(hidden)
    outputs = {
        "class": layers.Dense(3, dtype="float32", name="class")(changed),
        "value": layers.Dense(1, dtype="float32", name="value")(hidden),
    }
    return keras.Model(inputs, outputs)


def as_last_layer(make: Make) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    return keras.Model(inputs, make(name="fault")(layers.Dense(WIDTH)(inputs)))


@dataclass(frozen=True)
class Place:
    """A model around a layer, and the path of that layer in it."""

    build: Callable[[Make], keras.Model]
    path: str
    below: bool = False


PLACES = {
    "in a functional model": Place(in_functional, "fault"),
    "in a sequential model": Place(in_sequential, "fault"),
    "in a nested sequential": Place(in_nested_sequential, "block/fault"),
    "in a nested functional": Place(in_nested_functional, "block/fault"),
    "under an automatic name": Place(under_automatic_name, "sequential/fault"),
    "in a list of a subclassed model": Place(in_subclassed_list, "blocks/1"),
    "in a dict of a subclassed model": Place(in_subclassed_dict, "parts/second"),
    "inside another layer": Place(_around(Wrapped), "outer/part"),
    "inside a layer that casts back": Place(_around(CastsBack), "outer/part"),
    "called by keyword": Place(_around(ByKeyword), "outer/part"),
    "in a while loop": Place(_around(Loops), "outer/part"),
    # The attribute chain ends at an object that is no layer, so only the owner is sure.
    "in a plain object": Place(_around(Boxed), "outer", below=True),
    "made in call": Place(_around(MadeInCall), "outer", below=True),
    # Keras runs the wrapped layer's `call` and not the layer, so the wrapper may be named.
    "in a time-distributed wrapper": Place(in_time_distributed, "time_distributed", below=True),
    "shared by two branches": Place(shared, "fault"),
    "in a model of dicts": Place(in_dict_model, "fault"),
    "as the last layer": Place(as_last_layer, "fault"),
}
