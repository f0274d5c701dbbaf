"""Small models with something to pin, and what to compare of them."""

from __future__ import annotations

import json
import zipfile

import keras
from keras import layers, ops

from tf_amp_kit.tracing.paths import LayerPaths


@keras.saving.register_keras_serializable("pinning_tests")
class Passing(layers.Layer):
    """A block that passes its policy on to the layers that it makes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = layers.UnitNormalization(dtype=self.dtype_policy, name="norm")
        self.dense = layers.Dense(4, dtype=self.dtype_policy, name="dense")

    def build(self, shape):
        self.norm.build(shape)
        self.dense.build(shape)
        super().build(shape)

    def call(self, inputs):
        return self.dense(self.norm(inputs))

    def get_config(self):
        return super().get_config()


@keras.saving.register_keras_serializable("pinning_tests")
class Forgetting(Passing):
    """A block whose layers take the global policy."""

    def __init__(self, **kwargs):
        super(Passing, self).__init__(**kwargs)
        self.norm = layers.UnitNormalization()
        self.dense = layers.Dense(4)


@keras.saving.register_keras_serializable("pinning_tests")
class Residual(Passing):
    """A block whose own code refuses a float32 result of `dense`."""

    def call(self, inputs):
        return inputs + super().call(inputs)


@keras.saving.register_keras_serializable("pinning_tests")
class Scored(Passing):
    """A block whose own code multiplies with the result of `norm`."""

    def call(self, inputs):
        return ops.matmul(self.norm(inputs), ops.transpose(self.dense(inputs)))


@keras.saving.register_keras_serializable("pinning_tests")
class Net(keras.Model):
    """A subclassed model with a configuration."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.block = Forgetting()
        self.head = layers.Dense(2, activation="softmax")

    def build(self, shape):
        self.block.build(shape)
        self.head.build((shape[0], 4))
        super().build(shape)

    def call(self, inputs):
        return self.head(self.block(inputs))

    def get_config(self):
        return super().get_config()


def net():
    model = Net(name="net")
    model.build((None, 4))
    return model


def chain(*between, units=2, activation="softmax", shape=(4,)):
    """Puts layers between an input and a dense head."""
    head = layers.Dense(units, activation=activation, name="head")
    return keras.Sequential([keras.Input(shape), *between, head], name="chain")


def attention():
    inputs = keras.Input((6, 8))
    hidden = layers.MultiHeadAttention(2, 4, name="attention")(inputs, inputs)
    outputs = layers.Dense(3, activation="softmax", name="head")(hidden)
    return keras.Model(inputs, outputs, name="attention_model")


def dtypes(model):
    """Returns the compute dtype of every layer by path."""
    return {path: layer.compute_dtype for path, layer in LayerPaths(model)}


def layer_dtypes(model):
    """Returns the same without models, whose policies do nothing."""
    return {
        path: layer.compute_dtype
        for path, layer in LayerPaths(model)
        if not isinstance(layer, keras.Model)
    }


def in_float32(model):
    return {path for path, dtype in dtypes(model).items() if path and dtype == "float32"}


def config_in(file):
    """Reads the configuration that a `.keras` file holds."""
    with zipfile.ZipFile(file) as archive:
        # A shared policy is marked by its address, in plain Keras too.
        return _without(json.loads(archive.read("config.json")), "shared_object_id")


def _without(config, key):
    if isinstance(config, dict):
        return {name: _without(value, key) for name, value in config.items() if name != key}
    return [_without(value, key) for value in config] if isinstance(config, list) else config
