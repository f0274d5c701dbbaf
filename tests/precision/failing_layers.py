"""Layers that half precision makes fail, and models around them."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["Around", "Holding", "Model", "Normalizing", "TimesOnes", "X", "curing", "dtypes"]

X = np.arange(32, dtype="float32").reshape(8, 4)


def curing(precision="bf16"):
    return amp.amp_scope(precision, on_conflict="float32")


def dtypes(model):
    return {path: layer.compute_dtype for path, layer in LayerPaths(model)}


class Normalizing(layers.Layer):
    """Normalizes, and then multiplies by a float32 constant where `fails` says so."""

    def __init__(self, fails=lambda x: True, **kwargs):
        super().__init__(**kwargs)
        self.fails = fails
        self.norm = layers.BatchNormalization(momentum=0.5)

    def build(self, shape):
        self.norm.build(shape)

    def call(self, x, training=False, aux=False):
        x = tf.square(self.norm(x, training=training))
        return x * tf.ones([4]) if aux or self.fails(x) else x

    @property
    def share(self):
        """How much of the batch's mean the moving mean has, the same for each feature."""
        return self.norm.moving_mean.numpy()[1:] / X.mean(0)[1:]


class Holding(layers.Layer):
    """Holds a layer that fails, and that is pinned."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = Normalizing()

    def build(self, shape):
        self.inner.build(shape)


@keras.saving.register_keras_serializable("failing_layers")
class TimesOnes(layers.Layer):
    def call(self, x):
        return x * tf.ones([4])


class Model(keras.Model):
    """Calls one layer, with all arguments."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, x, **kwargs):
        return self.inner(x, **kwargs)


class Around(keras.Model):
    """Is not built itself, but all that it holds; fails in code of its own."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, x, training=False):
        return self.inner(x, training=training) * tf.ones([4])
