"""Saves a float32 model in the middle of its training, and goes on from the file."""

import keras
import numpy as np

x = np.ones((32, 4), "float32")
model = keras.Sequential(
    [
        keras.Input((4,)),
        keras.layers.Dense(3, dtype="float32"),
        keras.layers.Dense(1, dtype="float32"),
    ],
    name="of_file",
)
model.compile("adam", "mse")
model.fit(x, x[:, :1], batch_size=8, verbose=0)
model.save("model.keras")
loaded = keras.models.load_model("model.keras")
loaded.fit(x, x[:, :1], batch_size=8, verbose=0)
print(type(loaded.optimizer).__name__, int(loaded.optimizer.iterations))
