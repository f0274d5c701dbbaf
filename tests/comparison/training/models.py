"""Builders and data of comparisons, on the top level of a module: other processes import them."""

from __future__ import annotations

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp

NUM_SAMPLES = 256
_RANDOM = np.random.default_rng(0)
X = _RANDOM.normal(size=(NUM_SAMPLES, 4)).astype("float32")
Y = (X @ np.float32([[1.0], [-2.0], [0.5], [1.5]])).astype("float32")
CLASSES = (Y[:, 0] > 0).astype("int32")
_calls = itertools.count()


def linear() -> keras.Model:
    """A model that learns Y from X."""
    # Two layers: the head alone is pinned.
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(1)], name="linear")
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


def classifier() -> keras.Model:
    """A model that learns CLASSES from X, with all that moves while it does."""
    # A bias before the normalization has no gradient but rounding, which Adam makes steps of.
    hidden = [
        layers.Dense(8, use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Dropout(0.1),
    ]
    model = keras.Sequential([keras.Input((4,)), *hidden, layers.Dense(2)], name="classifier")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        amp.make_loss_scale_optimizer(keras.optimizers.Adam(0.02)), loss, metrics=["accuracy"]
    )
    return model


def tiny_gradients() -> keras.Model:
    """A model that does not scale its tiny loss."""
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)], name="tiny")
    model.compile(keras.optimizers.SGD(5e6), _TinyLoss(), auto_scale_loss=False)
    return model


def tiny_gradients_scaled() -> keras.Model:
    """The same model with loss scaling."""
    model = tiny_gradients()
    optimizer = amp.make_loss_scale_optimizer(keras.optimizers.SGD(5e6))
    model.compile(optimizer, _TinyLoss())
    return model


class _TinyLoss(keras.losses.Loss):
    def call(self, y: Any, y_pred: Any) -> Any:
        # In the precision of the outputs, as losses in a loop of one's own often are.
        return 1e-8 * tf.square(tf.cast(y, y_pred.dtype) - y_pred)


def _on_the_wrong_side(shape: Any, dtype: Any = None) -> Any:
    return keras.ops.cast([40, 0], dtype or "float32")


def saturating_head() -> keras.Model:
    """A softmax that begins far on the wrong side: in half its gradient is exactly zero."""
    head = layers.Dense(2, activation="softmax", bias_initializer=_on_the_wrong_side)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), head], name="saturating")
    model.compile(keras.optimizers.SGD(0.2), "sparse_categorical_crossentropy")
    return model


def idle() -> keras.Model:
    """A model that learns next to nothing."""
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(1)], name="idle")
    model.compile(keras.optimizers.SGD(1e-9), "mse")
    return model


def diverging() -> keras.Model:
    """A model whose loss is not finite after a few steps, in float32 too."""
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)], name="diverging")
    model.compile(keras.optimizers.SGD(1e9), "mse")
    return model


def of_another_size_each_time() -> keras.Model:
    """A model that counts its builds."""
    width = 3 + next(_calls)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(width), layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def ones() -> tuple[Any, Any]:
    """Targets of one class."""
    return X, np.ones(NUM_SAMPLES, "int32")


def others_each_time() -> tf.data.Dataset:
    """Data in an order that nobody repeats."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(NUM_SAMPLES).batch(32)


def batches() -> tf.data.Dataset:
    """Data that a process has to make for itself."""
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(32)
