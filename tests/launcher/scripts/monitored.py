"""Has a monitor, an optimizer that scales and a history of its own."""

import keras
import numpy as np

import tf_amp_kit as amp

model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)], name="own"
)
model.compile(amp.make_loss_scale_optimizer("sgd", initial_scale=64), "mse")
monitor = amp.AmpMonitor(prefix="my_", verbose=0)
history = model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0, callbacks=[monitor])
model.compile(model.optimizer, "mse")
print(sorted(history.history), float(model.optimizer.initial_scale))
