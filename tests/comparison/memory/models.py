"""Models whose memory is counted by hand."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf


def chain(policy: str = "float32", optimizer: object = "sgd") -> keras.Model:
    """Dense layers from 10 to 20 to 5 numbers, with 325 weights."""
    layers = [
        keras.layers.Dense(20, activation="relu", name="body", dtype=policy),
        keras.layers.Dense(5, name="head", dtype=policy),
    ]
    model = keras.Sequential([keras.Input((10,)), *layers], name="chain")
    model.compile(optimizer, "mse")
    return model


class Block(keras.layers.Layer):
    """Four Dense layers, of which only the input is kept if they are recomputed."""

    def __init__(self, *, is_recomputed: bool) -> None:
        super().__init__()
        self.inner = [keras.layers.Dense(32, activation="relu") for _ in range(4)]
        self.is_recomputed = is_recomputed

    def build(self, shape) -> None:
        for layer in self.inner:
            layer.build(shape)

    def run(self, x):
        for layer in self.inner:
            x = layer(x)
        return x

    def call(self, x):
        return tf.recompute_grad(self.run)(x) if self.is_recomputed else self.run(x)


class Subclassed(keras.Model):
    """A model that is not built."""

    def __init__(self) -> None:
        super().__init__(name="subclassed")
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        return self.dense(x)


class OwnStep(Subclassed):
    """A model that trains in its own way."""

    def train_step(self, data):
        return {}


def two_inputs() -> keras.Model:
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    first = keras.layers.Dense(2, name="first")(joined)
    second = keras.layers.Dense(5, activation="softmax", name="second")(a)
    model = keras.Model({"a": a, "b": b}, {"first": first, "second": second})
    model.compile("sgd", {"first": "mse", "second": "sparse_categorical_crossentropy"})
    return model


def recurrent(steps: int) -> keras.Model:
    layers = [keras.layers.LSTM(16, name="lstm"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((steps, 8)), *layers])
    model.compile("sgd", "mse")
    return model


def fixed() -> keras.Model:
    """Makes a model that takes eight samples, no more and no less."""
    layers = [keras.layers.LSTM(3, stateful=True), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input(batch_shape=(8, 5, 4)), *layers], name="fixed")
    model.compile("adam", "mse")
    return model


def deep(width: int = 256, optimizer: object = "sgd", num_layers: int = 8) -> keras.Model:
    """Makes a model of square kernels, whose activations are small beside them."""
    layers = [keras.layers.Dense(width, use_bias=False) for _ in range(num_layers)]
    model = keras.Sequential([keras.Input((width,)), *layers], name="deep")
    model.compile(optimizer, "mse")
    return model


ROWS = np.ones((4, 7), "float32"), np.ones((4, 3), "float32")


class Gelus(keras.layers.Layer):
    """Four activations, called without `training`, which RematScope cannot pass on."""

    def call(self, x):
        for _ in range(4):
            x = keras.ops.gelu(x)
        return x


def gelus(mode: str | None) -> keras.Model:
    """Makes two blocks, recomputed in the backward pass or not."""
    x = inputs = keras.Input((32,))
    for _ in range(2):
        x = keras.layers.Dense(32)(x)
        with keras.RematScope(mode=mode):
            block = Gelus()
        x = block(x)
    model = keras.Model(inputs, x)
    model.compile("sgd", "mse")
    return model
