"""Compiles one model twice with the same optimizer, and trains it after each."""

import keras
import numpy as np

model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)], name="twice"
)
optimizer = keras.optimizers.SGD(0.01)
for _ in range(2):
    model.compile(optimizer, "mse")
    history = model.fit(np.ones((8, 4)), np.ones((8, 1)), batch_size=4, verbose=0)
inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
print(type(model.optimizer).__name__, type(inner).__name__, *history.history)
