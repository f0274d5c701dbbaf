"""Constants that are another number in the half format."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from . import places
from .expect import Case, Expected
from .faults import WIDTH


class AddedMask(layers.Layer):
    def call(self, inputs):
        keep = ops.cast(inputs > 0, inputs.dtype)
        return ops.softmax(inputs + (1.0 - keep) * -1e9)  # PLANTED


class WhereMask(layers.Layer):
    def call(self, inputs):
        return ops.softmax(ops.where(inputs > 0, inputs, -1e9))  # PLANTED


class TfMask(layers.Layer):
    def call(self, inputs):
        low = tf.constant(-1e9, inputs.dtype)  # PLANTED
        return tf.nn.softmax(tf.where(inputs > 0, inputs, low))  # PLANTED


class AttributeMask(layers.Layer):
    """The line that uses the number does not show it."""

    def __init__(self, low=-1e9, **kwargs):
        super().__init__(**kwargs)
        self.low = low

    def call(self, inputs):
        return ops.softmax(ops.where(inputs > 0, inputs, self.low))  # PLANTED


class MultiplyMask(layers.Layer):
    def call(self, inputs):
        padding = ops.cast(ops.less(inputs, 0), self.compute_dtype)
        return ops.softmax(ops.add(inputs, ops.multiply(padding, -1e5)))  # PLANTED


class JustTooLarge(layers.Layer):
    def call(self, inputs):
        return ops.minimum(inputs, 65520.0)  # PLANTED


class LargestFinite(layers.Layer):
    def call(self, inputs):
        return ops.minimum(inputs, 65504.0)


class SmallMask(layers.Layer):
    def call(self, inputs):
        return ops.softmax(ops.where(inputs > 0, inputs, -1e4))


class TrueInfinity(layers.Layer):
    def call(self, inputs):
        return ops.softmax(ops.where(inputs >= -1e3, inputs, float("-inf")))


class FormatsLowest(layers.Layer):
    def call(self, inputs):
        return ops.softmax(tf.where(inputs > 0, inputs, inputs.dtype.min))


class AddedEpsilon(layers.Layer):
    def call(self, inputs):
        norm = ops.sqrt(ops.sum(ops.square(inputs), axis=-1, keepdims=True))
        return inputs / (norm + 1e-8)  # PLANTED


class AttributeEpsilon(layers.Layer):
    def __init__(self, epsilon=1e-12, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, inputs):
        total = ops.sum(ops.abs(inputs), axis=-1, keepdims=True)
        return inputs / ops.maximum(total, self.epsilon)  # PLANTED


class LogEpsilon(layers.Layer):
    def call(self, inputs):
        return ops.log(ops.relu(inputs) + 1e-10)  # PLANTED


class ClippedLog(layers.Layer):
    def call(self, inputs):
        chance = ops.clip(ops.softmax(inputs), 1e-8, 1 - 1e-8)  # PLANTED
        return ops.log(chance) - ops.log(1 - chance)


class ClippedHigh(layers.Layer):
    def call(self, inputs):
        return ops.minimum(ops.tanh(inputs), 1 - 1e-7)  # PLANTED


class GoodEpsilon(layers.Layer):
    def call(self, inputs):
        return inputs / (ops.sum(ops.abs(inputs), axis=-1, keepdims=True) + 1e-7)


class RoundsABit(layers.Layer):
    """1e-5 is a subnormal of float16, a little off, and not zero."""

    def call(self, inputs):
        return ops.log(ops.relu(inputs) + 1e-5)


class ZeroAndOne(layers.Layer):
    def call(self, inputs):
        return ops.clip(inputs, 0.0, 1.0) * 1.0 + 0.0


class ArrayZeros(layers.Layer):
    def call(self, inputs):
        return inputs * np.array([0, 1, 0, 1, 0, 1, 0, 1], "float32")


_LARGE = r"1e9|1e\+09|1000000000"


def _case(layer: type, code: str, says: tuple[str, ...], halves=("float16",), most=1) -> Case:
    return Case(
        layer.__name__,
        lambda half: places.in_functional(layer),
        (Expected(code, "fault", planted=layer, says=says, most=most),),
        halves=halves,
    )


def _place(layer: type, code: str, place: str) -> Case:
    at = places.PLACES[place]
    return Case(
        f"{layer.__name__} {place}",
        lambda half: at.build(layer),
        (Expected(code, at.path, planted=layer),),
        halves=("float16",),
    )


def _clean(layer: type, halves=("float16", "bfloat16")) -> Case:
    return Case(
        f"{layer.__name__} is fine", lambda half: places.in_functional(layer), halves=halves
    )


_PLACES = ("in a nested sequential", "in a list of a subclassed model", "in a while loop")
_BOTH = ("float16", "bfloat16")

CONSTANTS = [
    _case(AddedMask, "AMP204", (_LARGE,)),
    _case(WhereMask, "AMP204", (_LARGE,)),
    _case(TfMask, "AMP204", (_LARGE,)),
    _case(AttributeMask, "AMP204", (_LARGE,)),
    _case(MultiplyMask, "AMP204", (r"1e5|1e\+05|100000",)),
    _case(JustTooLarge, "AMP204", ("65520",)),
    _case(AddedEpsilon, "AMP205", ("1e-0?8",)),
    _case(AttributeEpsilon, "AMP205", ("1e-12",)),
    _case(LogEpsilon, "AMP205", ("1e-10",)),
    # The clip has two such numbers in float16 and one in bfloat16, on one line.
    _case(ClippedLog, "AMP205", (), _BOTH, most=2),
    _case(ClippedHigh, "AMP205", (r"0\.999|1e-0?7",), _BOTH),
    *[_place(WhereMask, "AMP204", place) for place in _PLACES],
    *[_place(AttributeEpsilon, "AMP205", place) for place in _PLACES],
    *[_clean(layer, ("bfloat16",)) for layer in (AddedMask, WhereMask, AttributeMask)],
    *[_clean(layer, ("bfloat16",)) for layer in (AddedEpsilon, AttributeEpsilon, LogEpsilon)],
    *[
        _clean(layer)
        for layer in (
            LargestFinite,
            SmallMask,
            TrueInfinity,
            FormatsLowest,
            GoodEpsilon,
            RoundsABit,
            ZeroAndOne,
            ArrayZeros,
        )
    ],
]


def _padded_attention(half: str) -> keras.Model:
    ids = keras.Input((5,), dtype="int32")
    hidden = layers.Embedding(11, WIDTH, mask_zero=True)(ids)
    hidden = layers.MultiHeadAttention(2, 4)(hidden, hidden, use_causal_mask=True)
    return keras.Model(ids, places.head()(layers.GlobalAveragePooling1D()(hidden)))


def _masked_softmax(half: str) -> keras.Model:
    inputs, mask = keras.Input((WIDTH,)), keras.Input((WIDTH,), dtype="bool")
    hidden = layers.Softmax()(layers.Dense(WIDTH)(inputs), mask)
    return keras.Model([inputs, mask], places.head()(hidden))


def _epsilon_in_norm(half: str) -> keras.Model:
    inputs = keras.Input((WIDTH,))
    hidden = layers.LayerNormalization(epsilon=1e-12)(layers.Dense(WIDTH)(inputs))
    return keras.Model(inputs, places.head()(hidden))


CONSTANTS += [
    Case("masked attention is fine", _padded_attention),
    Case("a masked softmax is fine", _masked_softmax),
    Case("a normalization's epsilon is added in float32", _epsilon_in_norm),
]
