"""Layers with one faulty line each, marked `# fault: NAME`, for any place in a model.

Each keeps the shape of its input and brings the numbers that it fails at, so
that the fault is there whatever the place feeds it. Nothing else in it, forward
or backward, is the first to go wrong.
"""

from __future__ import annotations

import tensorflow as tf
from keras import layers, ops

LARGE_EXPONENT = 12.0  # exp of it is 162755: above 65520, far below float32's end


def settled(inputs, number: float):
    """Return a tensor of one number that still depends on the inputs."""
    return inputs * 0 + number


class Faulty(layers.Layer):
    """Base of the layers with a fault."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape):
        return input_shape


class Exploder(Faulty):
    def call(self, inputs):
        exponents = settled(inputs, LARGE_EXPONENT)
        return ops.exp(exponents)  # fault: Exploder


class Overflow(Faulty):
    def call(self, inputs):
        thousand = settled(inputs, 1000.0)
        return thousand * 1000  # fault: Overflow


class HugeProduct(Faulty):
    """Beyond float32 and bfloat16 alike. No constant, which float16 would change first."""

    def call(self, inputs):
        product = settled(ops.cast(inputs, "float32"), 1e30)
        product = product * product  # fault: HugeProduct
        return ops.cast(product, inputs.dtype)


class SquareSum(Faulty):
    def call(self, inputs):
        squares = ops.square(settled(inputs, 200.0))
        total = ops.sum(squares)  # fault: SquareSum
        return inputs + total


class BadLog(Faulty):
    def call(self, inputs):
        nothing = settled(inputs, 0.0)
        return ops.log(nothing)  # fault: BadLog


class ClippedLog(Faulty):
    """The upper bound rounds to one in both half formats."""

    def call(self, inputs):
        share = ops.clip(settled(inputs, 1.0), 1e-7, 1 - 1e-7)
        rest = 1 - share
        return ops.log(rest)  # fault: ClippedLog


class DivideByVanished(Faulty):
    def call(self, inputs):
        vector = settled(inputs, 0.0)
        length = ops.sum(ops.abs(vector), axis=-1, keepdims=True) + 1e-8
        return vector / length  # fault: DivideByVanished


class BigMask(Faulty):
    def call(self, inputs):
        dropped = settled(inputs, 0.0)
        return inputs + dropped * -1e9  # fault: BigMask


class CastOverflow(Faulty):
    def call(self, inputs):
        wide = settled(ops.cast(inputs, "float32"), 7e4)
        return ops.cast(wide, self.compute_dtype)  # fault: CastOverflow


class SqrtAtZero(Faulty):
    """Finite forward; the slope is infinite."""

    def call(self, inputs):
        nothing = settled(inputs, 0.0)
        return inputs + ops.sqrt(nothing)  # fault: SqrtAtZero


class SingleWhere(Faulty):
    """The value is chosen away, the gradient is zero times infinity."""

    def call(self, inputs):
        nothing = settled(inputs, 0.0)
        logarithm = ops.log(nothing)  # fault: SingleWhere
        return inputs + ops.where(nothing > 0, logarithm, 0.0)


class BadCustomGradient(Faulty):
    """The identity, with a gradient that divides by zero."""

    def call(self, inputs):
        @tf.custom_gradient
        def identity(tensor):
            def gradient(upstream):
                nothing = upstream * 0
                return (upstream + 1) / nothing  # fault: BadCustomGradient

            return tf.identity(tensor), gradient

        return identity(inputs)


class FaultInTfFunction(Faulty):
    @tf.function
    def call(self, inputs):
        return inputs + self.inner(inputs)

    @tf.function
    def inner(self, inputs):
        exponents = settled(inputs, LARGE_EXPONENT)
        return tf.exp(exponents)  # fault: FaultInTfFunction


class FaultInWhile(Faulty):
    """Grows from 1 to 60, 3600 and 216000: only the third step overflows."""

    def call(self, inputs):
        def step(index, state):
            state = state * 60  # fault: FaultInWhile
            return index + 1, state

        start = (0, settled(inputs, 1.0))
        return ops.while_loop(lambda index, _: index < 3, step, start)[1]


class FaultInCond(Faulty):
    def call(self, inputs):
        exponents = settled(inputs, LARGE_EXPONENT)

        def faulty():
            return ops.exp(exponents)  # fault: FaultInCond

        return ops.cond(ops.max(exponents) > 0, faulty, lambda: inputs)


class FaultInMapFn(Faulty):
    def call(self, inputs):
        def each(row):
            nothing = settled(row, 0.0)
            return tf.math.log(nothing)  # fault: FaultInMapFn

        return tf.map_fn(each, inputs)


class FaultInAddLoss(Faulty):
    """The output is the input: only the loss sees it."""

    def call(self, inputs):
        squares = ops.square(settled(inputs, 200.0))
        total = ops.sum(squares)  # fault: FaultInAddLoss
        self.add_loss(ops.cast(total, "float32"))
        return inputs


class FaultInAssign(Faulty):
    """The output is the input: only a variable that is kept sees it."""

    def build(self, input_shape):
        self.kept = self.add_weight(shape=(), initializer="zeros", trainable=False, name="kept")

    def call(self, inputs):
        nothing = ops.max(settled(inputs, 0.0))
        logarithm = ops.log(nothing)  # fault: FaultInAssign
        self.kept.assign(ops.cast(logarithm, self.kept.dtype))
        return inputs


class FaultInSublayer(Faulty):
    """Owns the layer at fault."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts = [layers.Activation("tanh"), Exploder()]

    def call(self, inputs):
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class FaultInCell(layers.Layer):
    """A recurrent cell that overflows at time step 3 and at no other."""

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.state_size, self.output_size = [units, 1], units
        self.mix = layers.Dense(units, "tanh")

    def build(self, input_shape):
        self.mix.build((None, input_shape[-1] + self.output_size))

    def call(self, inputs, states):
        hidden, step = states
        hidden = self.mix(ops.concatenate([inputs, hidden], axis=-1))
        exponents = ops.where(step == 3, LARGE_EXPONENT, 0.0)
        growth = ops.exp(ops.cast(exponents, hidden.dtype))  # fault: FaultInCell
        return hidden * growth, [hidden * growth, step + 1]
