"""Tiny models and data of which every number can be computed by hand."""

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer

SCALE = 2.0**15


def scaled(learning_rate=0.0, **settings):
    """A loss-scaling optimizer; by default one that moves no weight."""
    return LossScaleOptimizer(keras.optimizers.SGD(learning_rate), **settings)


def identity(optimizer=None, *, layers=(), **compiled):
    """y = x, so that the mean squared error to 0 is the mean of x squared."""
    dense = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((1,)), *layers, dense])
    model.compile(optimizer or scaled(), "mse", **compiled)
    return model


def batches(*values):
    """Samples of which each is one batch; NaN makes it a bad one."""
    return np.array(values, "float32").reshape(-1, 1)


BAD = np.nan


def fit(model, values, *callbacks, **arguments):
    """Trains towards 0, one sample per step, in order."""
    x = batches(*values)
    arguments = {"batch_size": 1, "shuffle": False, "verbose": 0, **arguments}
    return model.fit(x, np.zeros_like(x), callbacks=list(callbacks), **arguments).history


class Counting(keras.layers.Layer):
    """Keeps the sum of what it saw; built only when it is called."""

    def build(self, shape):
        self.total = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        self.total.assign_add(tf.reduce_sum(x))
        return x


class Gan(keras.Model):
    """Two optimizers, of which the second one's gradient is bad at every bad sample."""

    def __init__(self):
        super().__init__()
        self.one = keras.layers.Dense(1, kernel_initializer="ones")
        self.two = keras.layers.Dense(1, kernel_initializer="ones")
        self.counting = Counting()
        self.first, self.second = scaled(), scaled()

    def call(self, x):
        return self.one(x) + self.two(x)

    def train_step(self, data):
        x, _ = data
        clean = tf.where(tf.math.is_finite(x), x, tf.zeros_like(x))
        for layer, optimizer, seen in (
            (self.one, self.first, clean),
            (self.two, self.second, x),
        ):
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(tf.reduce_mean(layer(self.counting(seen))))
            variables = layer.trainable_variables
            optimizer.apply(tape.gradient(loss, variables), variables)
        return {"first_loss": tf.constant(1.0)}


class OwnStep(keras.Model):
    """A train step of the user's, which keeps a mean named `loss` itself."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")
        self.mean = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.dense(x)

    @property
    def metrics(self):
        return [self.mean]

    def train_step(self, data):
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x))
            scaled_loss = self.optimizer.scale_loss(loss)
        grads = tape.gradient(scaled_loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        self.mean.update_state(loss)
        return {"loss": self.mean.result()}


class Unbuilt(keras.Model):
    """A subclassed model, which Keras builds in its first batch."""

    def __init__(self):
        super().__init__()
        self.counting = Counting()
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")

    def call(self, x):
        return self.dense(self.counting(x))


def with_nan_loss(y, prediction):
    """A loss that is NaN where the target is, with gradients that are finite."""
    return tf.reduce_mean(prediction**2, axis=-1) + tf.stop_gradient(tf.reduce_mean(y, axis=-1))
