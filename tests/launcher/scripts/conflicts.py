"""Two layers that float32 takes and half precision does not: one always, one in training."""

import sys

import keras
import numpy as np
import tensorflow as tf


class TimesOnes(keras.layers.Layer):
    def call(self, x):
        return x * tf.ones([4])


class Noisy(keras.layers.Layer):
    def call(self, x, training=False):
        return x + tf.random.uniform([4]) if training else x


inputs = keras.Input((4,))
x = keras.layers.Dense(4)(inputs)
x = Noisy(name="noisy")(TimesOnes(name="times_ones")(x))
model = keras.Model(inputs, keras.layers.Dense(1)(x), name="net")
model.compile("sgd", "mse")
if "loop" in sys.argv:
    model(np.ones((4, 4)), training=True)
else:
    model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
print({layer.name: layer.compute_dtype for layer in model.layers[2:4]})
