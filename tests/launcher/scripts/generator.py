"""Trains a model that is not built on a generator, and notes what was taken from it."""

import keras
import numpy as np

taken = []


def batches():
    for number in range(3):
        taken.append(number)
        yield np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


head = keras.layers.Dense(1, name="head")
model = keras.Sequential([keras.layers.Dense(3, name="body"), head], name="of_generator")
model.compile("sgd", "mse")
model.fit(batches(), steps_per_epoch=3, shuffle=False, verbose=0)
print(taken)
print(model.layers[0].compute_dtype)
