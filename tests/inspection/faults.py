"""Small layers that lose the half precision, each marked at the line that does it.

Every layer keeps the shape of its input, whose last axis has 8 entries, so that
it can stand anywhere in the models of `places.py`.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import ops

WIDTH = 8


def float32_array():
    return np.full(WIDTH, 1.5, "float32")


def float32_tensor():
    return ops.full((WIDTH,), 1.5, dtype="float32")


def float64_array():
    return np.ones(WIDTH)


def float32_scalar():
    return np.float32(1.5)


def square_array():
    return np.eye(WIDTH, dtype="float32")


def square_tensor():
    return ops.eye(WIDTH, dtype="float32")


def square_float64():
    return np.eye(WIDTH)


class WithConstant(keras.layers.Layer):
    """Base of the layers that combine their input with a constant."""

    def __init__(self, constant=float32_array, **kwargs):
        super().__init__(**kwargs)
        self.constant = constant()


class Multiply(WithConstant):
    def call(self, inputs):
        return ops.multiply(inputs, self.constant)  # PLANTED


class Add(WithConstant):
    def call(self, inputs):
        return ops.add(inputs, self.constant)  # PLANTED


class Divide(WithConstant):
    def call(self, inputs):
        return ops.divide(inputs, self.constant)  # PLANTED


class Maximum(WithConstant):
    def call(self, inputs):
        return ops.maximum(inputs, self.constant)  # PLANTED


class Where(WithConstant):
    def call(self, inputs):
        return ops.where(inputs > 0, inputs, self.constant)  # PLANTED


class Concatenate(WithConstant):
    def call(self, inputs):
        return ops.concatenate([self.constant[None], inputs], axis=0)[1:]  # PLANTED


class Matmul(WithConstant):
    def call(self, inputs):
        return ops.matmul(inputs, self.constant)  # PLANTED


class Einsum(WithConstant):
    def call(self, inputs):
        return ops.einsum("...i,ij->...j", inputs, self.constant)  # PLANTED


class Tensordot(WithConstant):
    def call(self, inputs):
        return ops.tensordot(inputs, self.constant, axes=1)  # PLANTED


class HiddenCast(keras.layers.Layer):
    """Keras records half for it, because the shape is given and `call` is not traced."""

    def call(self, inputs):
        return tf.cast(inputs, "float32") * 2  # PLANTED

    def compute_output_shape(self, input_shape):
        return input_shape


class HiddenOpsCast(keras.layers.Layer):
    def call(self, inputs):
        hidden = ops.relu(inputs)
        wide = ops.cast(hidden, "float32")  # PLANTED
        return ops.tanh(wide) + 1.0

    def compute_output_shape(self, input_shape):
        return input_shape


class HiddenSpec(keras.layers.Layer):
    """Says half in `compute_output_spec` and returns float32."""

    def call(self, inputs):
        return ops.multiply(inputs, np.full(WIDTH, 2.0, "float32"))  # PLANTED

    def compute_output_spec(self, inputs):
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)


class OpenCast(keras.layers.Layer):
    def call(self, inputs):
        return ops.cast(inputs, "float32")  # PLANTED


class DoubleCast(keras.layers.Layer):
    def call(self, inputs):
        return tf.cast(inputs, tf.float64) * 2  # PLANTED


class WideWeight(keras.layers.Layer):
    """A weight that autocast leaves alone."""

    def build(self, input_shape):
        self.scale = self.add_weight(
            shape=(input_shape[-1],), initializer="ones", name="scale", autocast=False
        )

    def call(self, inputs):
        return ops.multiply(inputs, self.scale)  # PLANTED


class WideKernel(keras.layers.Layer):
    """A matrix that autocast leaves alone."""

    def build(self, input_shape):
        width = input_shape[-1]
        self.kernel = self.add_weight(shape=(width, width), name="kernel", autocast=False)

    def call(self, inputs):
        return ops.matmul(inputs, self.kernel)  # PLANTED


class NoAutocast(keras.layers.Layer):
    """The whole layer opts out of autocasting; its weights stay wide."""

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="scale")

    def call(self, inputs):
        return ops.add(ops.cast(inputs, self.compute_dtype), self.scale)  # PLANTED


class VariableDtype(keras.layers.Layer):
    """`self.dtype` is the variables' dtype, not the one to compute in."""

    def call(self, inputs):
        return ops.add(inputs, ops.ones((WIDTH,), dtype=self.dtype))  # PLANTED


class PositionCodes(keras.layers.Layer):
    def call(self, inputs):
        codes = ops.sin(ops.arange(inputs.shape[-1], dtype="float32"))
        return ops.add(inputs, codes)  # PLANTED


class FloatMask(keras.layers.Layer):
    def call(self, inputs):
        keep = ops.cast(inputs > 0, "float32")
        return ops.multiply(inputs, keep)  # PLANTED


class WideNoise(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        noise = keras.random.normal((WIDTH,), dtype="float32", seed=self.seed_generator)
        return ops.add(inputs, noise)  # PLANTED


class TrainingOnly(keras.layers.Layer):
    """Reverts in training, keeps half at inference."""

    def call(self, inputs, training=False):
        if training:
            return ops.multiply(inputs, np.full(WIDTH, 2.0, "float32"))  # PLANTED
        return inputs


class TwoOutputs(keras.layers.Layer):
    """Returns a dict whose second entry is wide."""

    def call(self, inputs):
        wide = ops.multiply(inputs, np.full(WIDTH, 2.0, "float32"))  # PLANTED
        return {"kept": ops.relu(inputs), "wide": wide}


class InGraphFunction(keras.layers.Layer):
    """The mistake is inside a tf.function that `call` uses."""

    def call(self, inputs):
        return self.widen(inputs)

    @tf.function
    def widen(self, inputs):
        return tf.cast(inputs, "float32") * 2  # PLANTED


class InBranch(keras.layers.Layer):
    """The mistake is inside the branches of a conditional."""

    def call(self, inputs):
        double = lambda: ops.multiply(inputs, np.full(WIDTH, 2.0, "float32"))  # noqa: E731 # PLANTED
        return ops.cond(ops.sum(inputs) > 0, double, double)


class Resize(keras.layers.Layer):
    """Bilinear resizing returns float32 for every input. For images."""

    def call(self, inputs):
        return tf.image.resize(inputs, (4, 4))  # PLANTED


def helper_widen(inputs):
    return ops.subtract(inputs, np.full(WIDTH, 0.5, "float32"))  # PLANTED


class InHelper(keras.layers.Layer):
    """The mistake is in a function of the user's outside the class."""

    def call(self, inputs):
        return helper_widen(inputs)


# Half results that are computed wide inside.


class CastUpMatmul(keras.layers.Layer):
    def build(self, input_shape):
        width = input_shape[-1]
        self.kernel = self.add_weight(shape=(width, width), name="kernel")

    def call(self, inputs):
        wide = ops.cast(inputs, "float32")
        wide = ops.matmul(wide, ops.cast(self.kernel, "float32"))  # PLANTED
        return ops.cast(wide, self.compute_dtype)


class CastUpEinsum(CastUpMatmul):
    def call(self, inputs):
        wide = ops.cast(inputs, "float32")
        wide = ops.einsum("...i,ij->...j", wide, ops.cast(self.kernel, "float32"))  # PLANTED
        return ops.cast(wide, inputs.dtype)


class CastUpConv(keras.layers.Layer):
    """For images."""

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(3, 3, input_shape[-1], WIDTH), name="kernel")

    def call(self, inputs):
        kernel = tf.cast(self.kernel, "float32")
        wide = tf.nn.conv2d(tf.cast(inputs, "float32"), kernel, 1, "SAME")  # PLANTED
        return tf.cast(wide, self.compute_dtype)


class WideKernelCastBack(WideKernel):
    def call(self, inputs):
        wide = ops.matmul(inputs, self.kernel)  # PLANTED
        return ops.cast(wide, inputs.dtype)


class CastUpInGraphFunction(CastUpMatmul):
    def call(self, inputs):
        return ops.cast(self.project(inputs), inputs.dtype)

    @tf.function
    def project(self, inputs):
        return tf.linalg.matmul(tf.cast(inputs, "float32"), square_tensor())  # PLANTED


class CastUpInLoop(CastUpMatmul):
    def call(self, inputs):
        kernel = ops.cast(self.kernel, "float32")

        def step(index, state):
            wide = ops.matmul(ops.cast(state, "float32"), kernel)  # PLANTED
            return index + 1, ops.cast(wide, state.dtype)

        return ops.while_loop(lambda index, state: index < 3, step, (0, inputs))[1]


class WideSublayer(keras.layers.Layer):
    """A float32 Dense between two half casts."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = keras.layers.Dense(WIDTH, dtype="float32")

    def build(self, input_shape):
        self.inner.build(input_shape)

    def call(self, inputs):
        return ops.cast(self.inner(inputs), self.compute_dtype)  # PLANTED
