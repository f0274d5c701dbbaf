"""Tries widths as tuners do: each trial begins with a clean session."""

import sys

import keras
import numpy as np

x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
y = x[:, :1]


def build(width):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(width, activation="relu"),
            keras.layers.Dense(1),
        ],
        name=f"trial_{width}",
    )
    model.compile("adam", "mse")
    return model


for width in map(int, sys.argv[1:]):
    keras.utils.clear_session()
    model = build(width)
    model.fit(x, y, epochs=1, verbose=0)
    print(width, model.layers[0].compute_dtype, keras.config.dtype_policy().name)
