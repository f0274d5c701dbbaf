"""Trains a model that is not built on two replicas, by `fit` outside of the scope."""

import keras
import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = keras.Sequential(
        [keras.layers.Dense(3), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    )
    model.compile("adam", "mse")
model.fit(np.ones((16, 4), "float32"), np.ones((16, 1), "float32"), batch_size=8, verbose=0)
print(model.layers[0].compute_dtype)
