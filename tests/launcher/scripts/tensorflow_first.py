"""Imports TensorFlow before Keras, as most scripts do."""

import tensorflow as tf  # noqa: F401, I001
import keras

print(keras.layers.Dense(1).dtype_policy.name)
