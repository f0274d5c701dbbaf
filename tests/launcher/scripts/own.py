"""Sets a policy itself."""

import keras
import numpy as np

keras.config.set_dtype_policy("mixed_float16")
model = keras.Sequential(
    [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)], name="own"
)
model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
print(model.layers[0].compute_dtype, type(model.optimizer).__module__.split(".")[0])
