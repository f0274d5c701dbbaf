"""The kinds of silent reversion that are planted into whole models.

Each keeps the shape of its input, whatever its rank and width, and passes masks on.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import ops


class Reversion(keras.layers.Layer):
    """Base: keeps shapes and masks."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape):
        return input_shape


class ByArray(Reversion):
    def call(self, inputs):
        return ops.multiply(inputs, np.full(inputs.shape[-1], 1.5, "float32"))  # PLANTED


class ByDoubleArray(Reversion):
    def call(self, inputs):
        return ops.multiply(inputs, np.ones(inputs.shape[-1]))  # PLANTED


class ByConstant(Reversion):
    def call(self, inputs):
        return ops.add(inputs, ops.ones((inputs.shape[-1],)))  # PLANTED


class ByCast(Reversion):
    def call(self, inputs):
        return tf.cast(inputs, "float32") * 2  # PLANTED


class ByWeight(Reversion):
    def build(self, input_shape):
        self.scale = self.add_weight(
            shape=(input_shape[-1],), initializer="ones", name="scale", autocast=False
        )

    def call(self, inputs):
        return ops.multiply(inputs, self.scale)  # PLANTED


class ByPositions(Reversion):
    def call(self, inputs):
        codes = ops.sin(ops.arange(inputs.shape[-1], dtype="float32"))
        return ops.add(inputs, codes)  # PLANTED


KINDS = (ByArray, ByDoubleArray, ByConstant, ByCast, ByWeight, ByPositions)
