"""Layers with an infinity or a NaN inside that no result depends on.

Nothing that comes out of them is wrong, so none of them is the origin of anything.
"""

from __future__ import annotations

import tensorflow as tf
from keras import layers, ops

from .faulty_layers import LARGE_EXPONENT, settled


def infinite(inputs):
    """Return positive infinities without a gradient, in every precision."""
    return ops.exp(settled(ops.stop_gradient(inputs), 200.0))


class Dropped(layers.Layer):
    """Computed and not used."""

    def call(self, inputs):
        ops.log(settled(inputs, 0.0))
        return inputs


class Bounded(layers.Layer):
    def call(self, inputs):
        return inputs + ops.minimum(infinite(inputs), 2.0)


class Saturated(layers.Layer):
    def call(self, inputs):
        return inputs * ops.tanh(infinite(inputs))


class Inverted(layers.Layer):
    def call(self, inputs):
        return inputs + 1 / infinite(inputs)


class ChosenAway(layers.Layer):
    """A NaN on the side that `where` does not take."""

    def call(self, inputs):
        wild = infinite(inputs) * 0
        return inputs + ops.where(ops.isfinite(wild), wild, 1.0)


class Compared(layers.Layer):
    def call(self, inputs):
        return inputs * ops.cast(infinite(inputs) > 1, inputs.dtype)


class Extreme(layers.Layer):
    """A running minimum that starts at infinity, in a loop."""

    def call(self, inputs):
        def step(index, least):
            return index + 1, ops.minimum(least, ops.stop_gradient(inputs) + 1)

        start = (0, infinite(inputs))
        return inputs + ops.while_loop(lambda index, _: index < 2, step, start)[1]


class PartlyMasked(layers.Layer):
    """The mask that float16 turns into minus infinity, with no row masked fully."""

    def call(self, inputs):
        keep = ops.arange(inputs.shape[-1]) % 2 == 0
        scores = ops.where(keep, inputs, -1e9)
        return inputs * ops.softmax(scores)


class OtherBranch(layers.Layer):
    """The branch that would overflow is not taken."""

    def call(self, inputs):
        exponents = settled(inputs, LARGE_EXPONENT)
        return ops.cond(ops.max(exponents) < 0, lambda: ops.exp(exponents), lambda: inputs)


class HiddenGradient(layers.Layer):
    """The square root's infinite slope is stopped before any weight."""

    def call(self, inputs):
        zero = tf.zeros_like(inputs)
        with tf.GradientTape() as tape:
            tape.watch(zero)
            root = tf.sqrt(zero)
        slope = tape.gradient(root, zero)
        return inputs + ops.minimum(ops.stop_gradient(slope), 1.0)


HARMLESS = (
    Dropped,
    Bounded,
    Saturated,
    Inverted,
    ChosenAway,
    Compared,
    Extreme,
    PartlyMasked,
    OtherBranch,
    HiddenGradient,
)
