"""Compiles nothing: a loop with an optimizer of its own."""

import keras
import numpy as np
import tensorflow as tf

x = np.ones((8, 4), "float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD()
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(model(x, training=True) ** 2)
optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
print(model.layers[0].compute_dtype)
