"""Custom layers of the clean models: what people write, and write correctly.

Some hold infinities on purpose, others take an edge where a careless version
would divide by zero. All results and all gradients are finite.
"""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import layers, ops

from .slots import WIDTH


class GatedCell(layers.Layer):
    """A recurrent cell by hand."""

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.state_size = self.output_size = units
        self.gate = layers.Dense(units, "sigmoid")
        self.candidate = layers.Dense(units, "tanh")

    def build(self, input_shape):
        width = input_shape[-1] + self.state_size
        self.gate.build((None, width))
        self.candidate.build((None, width))

    def call(self, inputs, states):
        (hidden,) = states
        both = ops.concatenate([inputs, hidden], axis=-1)
        share = self.gate(both)
        hidden = share * hidden + (1 - share) * self.candidate(both)
        return hidden, [hidden]


class HandMask(layers.Layer):
    """Weights by a softmax whose mask is minus infinity, with no row masked fully."""

    def call(self, inputs):
        keep = ops.arange(WIDTH) < WIDTH - 3
        scores = tf.where(keep, inputs, float("-inf"))
        return inputs * tf.nn.softmax(scores, axis=-1)


class LogSumExp(layers.Layer):
    """The logarithm of a sum of exponentials, some of them of minus infinity."""

    def call(self, inputs):
        scores = ops.where(ops.arange(WIDTH) % 2 == 0, inputs, float("-inf"))
        return inputs - ops.logsumexp(scores, axis=-1, keepdims=True)


class VanishingTemperature(layers.Layer):
    """A forward pass through one over infinity, which is zero, with no gradient."""

    def call(self, inputs):
        heat = ops.exp(ops.stop_gradient(inputs * 0) + 200)
        return inputs + 1 / heat


class SafeLogAndRoot(layers.Layer):
    """The `where` on both sides: neither the value nor the gradient sees the zero."""

    def call(self, inputs):
        is_positive = inputs > 0.1
        safe = ops.where(is_positive, inputs, 1.0)
        logarithm = ops.where(is_positive, ops.log(safe), 0.0)
        return logarithm + ops.where(is_positive, ops.sqrt(safe), 0.0)


class UnitLength(layers.Layer):
    """Vectors of length one; zero vectors stay zero."""

    def call(self, inputs):
        square = ops.sum(ops.square(inputs), axis=-1, keepdims=True)
        return inputs * ops.rsqrt(ops.maximum(square, 1e-3))


class ZeroRows(layers.Layer):
    """Sets every second feature row to one number: its variance is zero."""

    def call(self, inputs):
        rows = ops.cumsum(ops.ones_like(inputs[:, :1]), axis=0)
        return ops.where(rows % 2 == 0, inputs, 0.5)


class GraphLayer(layers.Layer):
    """A `call` that is a tf.function and calls another one."""

    @tf.function
    def call(self, inputs):
        return self.squash(inputs) + inputs

    @tf.function
    def squash(self, inputs):
        return tf.tanh(inputs * 0.5)


class Iterated(layers.Layer):
    """A loop of a fixed number of steps."""

    def call(self, inputs):
        def step(index, state):
            return index + 1, ops.tanh(state * 0.9)

        return ops.while_loop(lambda index, _: index < 3, step, (0, inputs))[1]


class IteratedByTensorFlow(layers.Layer):
    """The same with TensorFlow's own loop, and a number of steps that the data gives."""

    def call(self, inputs):
        steps = tf.shape(inputs)[0]
        start = (tf.constant(0), inputs)
        body = lambda index, state: (index + 1, state * 0.9 + 0.01)  # noqa: E731
        return tf.while_loop(lambda index, _: index < steps, body, start)[1]


class Decayed(layers.Layer):
    """A scan over the features."""

    def call(self, inputs):
        def step(carry, column):
            carry = carry * 0.5 + column
            return carry, carry

        columns = ops.transpose(inputs)
        _, result = ops.scan(step, columns[0] * 0, columns)
        return ops.reshape(ops.transpose(result), ops.shape(inputs))


class Branched(layers.Layer):
    """One of two branches, of which the other would divide by zero."""

    def call(self, inputs):
        total = ops.sum(ops.abs(inputs))
        return ops.cond(total > 0, lambda: inputs / total, lambda: inputs)


class Mapped(layers.Layer):
    """A function of each row."""

    def call(self, inputs):
        return tf.map_fn(lambda row: row - tf.reduce_max(row), inputs)


class ClippedGradient(layers.Layer):
    """Bounds the gradient on its way back."""

    def call(self, inputs):
        @tf.custom_gradient
        def bounded(tensor):
            return tf.identity(tensor), lambda upstream: tf.clip_by_value(upstream, -100, 100)

        return bounded(inputs)


class Recomputed(layers.Layer):
    """Keeps nothing for the backward pass and computes it once more there."""

    def build(self, input_shape):
        width = input_shape[-1]
        self.kernel = self.add_weight(shape=(width, width), name="kernel")

    def call(self, inputs):
        block = tf.recompute_grad(lambda tensor, kernel: tf.nn.gelu(tensor @ kernel))
        return block(inputs, tf.convert_to_tensor(self.kernel))


class WithPenalty(layers.Layer):
    """Adds a loss of its own."""

    def call(self, inputs):
        penalty = ops.mean(ops.square(ops.cast(inputs, "float32")))
        self.add_loss(0.01 * penalty)
        return inputs


class Float32L2(keras.regularizers.Regularizer):
    """A penalty in float32, which Keras can add to the loss under every policy."""

    def __call__(self, x):
        return 0.01 * ops.sum(ops.square(ops.cast(x, "float32")))
