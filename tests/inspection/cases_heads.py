"""Outputs in half, and the sigmoid or softmax heads whose gradient vanishes there."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers, ops

from . import places
from .expect import Case, Expected
from .faults import WIDTH


def _model(*stack: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((WIDTH,)), layers.Dense(WIDTH), *stack])


def _dense(activation, name="head", units=3, **kwargs) -> layers.Layer:
    return layers.Dense(units, activation=activation, name=name, **kwargs)


class OwnSigmoid(layers.Layer):
    """Ends in a sigmoid of its own."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], 1), name="kernel")

    def call(self, inputs):
        return ops.sigmoid(ops.matmul(inputs, self.kernel))


class Subclassed(keras.Model):
    """Keeps a softmax head as an attribute."""

    def __init__(self):
        super().__init__()
        self.first, self.classify = layers.Dense(WIDTH), _dense("softmax")

    def call(self, inputs):
        return self.classify(self.first(inputs))


def _subclassed(half: str) -> keras.Model:
    model = Subclassed()
    model(np.zeros((2, WIDTH), "float32"))
    return model


def _two_heads(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    outputs = {
        "class": _dense("softmax", "class")(hidden),
        "value": layers.Dense(1, dtype="float32", name="value")(hidden),
    }
    return keras.Model(inputs, outputs)


def _nested_head(half: str) -> keras.Model:
    return _model(keras.Sequential([keras.Input((WIDTH,)), _dense("sigmoid")], name="tail"))


def _gate(half: str) -> keras.Model:
    """A sigmoid gate in the middle is no head."""
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH)(inputs)
    gated = layers.Multiply()([hidden, layers.Dense(WIDTH, activation="sigmoid")(hidden)])
    return keras.Model(inputs, places.head()(gated))


def _attention(half: str) -> keras.Model:
    inputs = keras.Input((5, WIDTH))
    hidden = layers.MultiHeadAttention(2, 4)(inputs, inputs)
    return keras.Model(inputs, places.head()(layers.GlobalAveragePooling1D()(hidden)))


def _saturates(name: str, build, path: str | None = "head") -> Case:
    return Case(name, build, (Expected("AMP202", path),))


HEADS = [
    _saturates("sigmoid head", lambda half: _model(_dense("sigmoid", units=1))),
    _saturates("softmax head", lambda half: _model(_dense("softmax"))),
    _saturates(
        "softmax layer", lambda half: _model(_dense(None, "x"), layers.Softmax(name="head"))
    ),
    _saturates(
        "sigmoid activation layer",
        lambda half: _model(_dense(None, "x"), layers.Activation("sigmoid", name="head")),
    ),
    _saturates(
        "a float32 layer after a half sigmoid does not help",
        lambda half: _model(
            _dense("sigmoid"), layers.Activation("linear", dtype="float32", name="last")
        ),
    ),
    _saturates(
        "reshaped after the softmax",
        lambda half: _model(_dense("softmax", units=4), layers.Reshape((2, 2))),
    ),
    _saturates("a custom layer ends in a sigmoid", lambda half: _model(OwnSigmoid(name="head"))),
    _saturates("subclassed", _subclassed, "classify"),
    _saturates("one of two heads", _two_heads, "class"),
    _saturates("in a nested sequential", _nested_head, "tail/head"),
    Case(
        "a linear half output",
        lambda half: _model(_dense(None)),
        (Expected("AMP201", says=("b?float16",)),),
    ),
    Case(
        "a nested half output",
        lambda half: _model(keras.Sequential([keras.Input((WIDTH,)), _dense(None)], name="tail")),
        (Expected("AMP201"),),
    ),
]

# Here not even AMP201 or AMP202 may come.
FLOAT32_HEADS = [
    Case("sigmoid", lambda half: _model(_dense("sigmoid", dtype="float32"))),
    Case("softmax", lambda half: _model(_dense("softmax", dtype="float32"))),
    Case(
        "softmax layer",
        lambda half: _model(_dense(None), layers.Softmax(dtype="float32", name="s")),
    ),
    Case("linear", lambda half: _model(_dense(None, dtype="float32"))),
    Case("sigmoid gate before it", _gate),
    Case("attention before it", _attention),
]
