"""Layers in which two dtypes meet and TensorFlow raises."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from .faults import WIDTH


def tensor():
    return tf.ones((WIDTH,), "float32")


class TimesTensor(keras.layers.Layer):
    def call(self, inputs):
        return inputs * tensor()  # PLANTED


class PlusTensor(keras.layers.Layer):
    def call(self, inputs):
        return inputs + tf.ones((WIDTH,))  # PLANTED


class TensorMinus(keras.layers.Layer):
    def call(self, inputs):
        return tensor() - inputs  # PLANTED


class TfEinsum(keras.layers.Layer):
    def call(self, inputs):
        return tf.einsum("bi,ij->bj", inputs, tf.eye(WIDTH))  # PLANTED


class TfConcat(keras.layers.Layer):
    def call(self, inputs):
        return tf.concat([tensor()[None], inputs], axis=0)[1:]  # PLANTED


class TfWhere(keras.layers.Layer):
    def call(self, inputs):
        return tf.where(inputs > 0, inputs, tensor())  # PLANTED


class TfMatmul(keras.layers.Layer):
    """Raises in float16; in bfloat16 TensorFlow takes a mixed kernel and reverts."""

    def call(self, inputs):
        return tf.linalg.matmul(inputs, tf.eye(WIDTH))  # PLANTED


class DropPath(keras.layers.Layer):
    """Stochastic depth as it is often written; fails only in training."""

    def call(self, inputs, training=False):
        if training:
            keep = tf.floor(0.9 + tf.random.uniform((tf.shape(inputs)[0], 1), dtype="float32"))
            inputs = (inputs / 0.9) * keep  # PLANTED
        return inputs


class Fourier(keras.layers.Layer):
    """The transform has no half form."""

    def call(self, inputs):
        return tf.math.real(tf.signal.rfft(inputs, [14]))  # PLANTED


class HiddenConflict(keras.layers.Layer):
    """Builds, because the shape is given; fails once it is called."""

    def call(self, inputs):
        return tf.math.maximum(inputs, tensor())  # PLANTED

    def compute_output_shape(self, input_shape):
        return input_shape


class InGraphFunction(keras.layers.Layer):
    def call(self, inputs):
        return self.shift(inputs)

    @tf.function
    def shift(self, inputs):
        return inputs + tf.ones((WIDTH,))  # PLANTED


class InLoop(keras.layers.Layer):
    def call(self, inputs):
        def step(index, state):
            return index + 1, state * tensor()  # PLANTED

        return ops.while_loop(lambda index, state: index < 2, step, (0, inputs))[1]


class CausalMask(keras.layers.Layer):
    """A hand-made float32 mask added to half scores."""

    def call(self, inputs):
        scores = ops.matmul(inputs, ops.transpose(inputs))
        mask = tf.constant(np.zeros((1, 1), "float32"))
        return ops.matmul(scores + mask, inputs)  # PLANTED


ALWAYS = (
    TimesTensor,
    PlusTensor,
    TensorMinus,
    TfEinsum,
    TfConcat,
    TfWhere,
    Fourier,
    HiddenConflict,
    InGraphFunction,
    InLoop,
    CausalMask,
)
