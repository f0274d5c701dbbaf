"""Tiny models of all kinds, each built by code under whatever policy is in force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
from keras import layers

Builder = Callable[[], keras.Model]

SAMPLES: Final = 6


class WithoutDtype(layers.Layer):
    """Makes sublayers that take the global policy, and a weight of its own."""

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.inner = layers.Dense(units, activation="relu")
        self.blocks = [layers.Dense(units), layers.LayerNormalization()]

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(self.units,), initializer="ones", name="scale")
        self.inner.build(input_shape)
        for block in self.blocks:
            block.build((*input_shape[:-1], self.units))
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        outputs = self.inner(inputs) * self.scale
        for block in self.blocks:
            outputs = block(outputs)
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


class WithDtype(layers.Layer):
    """Passes its own policy on to its sublayer; its config has no policy object."""

    def __init__(self, units: int, dtype: Any = None, name: str | None = None) -> None:
        super().__init__(dtype=dtype, name=name)
        self.inner = layers.Dense(units, dtype=self.dtype_policy)
        self.units = units

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape)
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)

    def get_config(self) -> dict[str, Any]:
        return {"units": self.units, "dtype": self.dtype_policy.name, "name": self.name}


class Subclassed(keras.Model):
    """Holds a Sequential that holds a Functional, and a list and a dictionary of layers."""

    def __init__(self, units: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        inputs = keras.Input((4,))
        functional = keras.Model(inputs, layers.Dense(units)(inputs), name="functional_inside")
        self.stack = keras.Sequential([functional, layers.Dropout(0.25, seed=3)], name="stack")
        self.steps = [layers.Dense(units, activation="tanh"), layers.BatchNormalization()]
        self.heads = {"out": layers.Dense(2)}

    def call(self, inputs: Any, training: bool = False) -> Any:
        outputs = self.stack(inputs, training=training)
        for step in self.steps:
            outputs = step(outputs)
        return self.heads["out"](outputs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}


def functional() -> keras.Model:
    inputs = keras.Input((4,), name="features")
    return keras.Model(inputs, layers.Dense(2, name="head")(layers.Dense(3)(inputs)), name="plain")


def several_inputs_and_outputs() -> keras.Model:
    left, right = keras.Input((4,), name="left"), keras.Input((3,), name="right")
    joined = layers.Concatenate()([layers.Dense(3)(left), layers.Dense(2)(right)])
    outputs = {"a": layers.Dense(2, name="a")(joined), "b": layers.Dense(2, name="b")(joined)}
    return keras.Model({"left": left, "right": right}, outputs)


def shared_layer() -> keras.Model:
    """One layer called twice, and once more inside an inner model."""
    shared = layers.Dense(4, name="shared", activation="tanh")
    inner_input = keras.Input((4,))
    inner = keras.Model(inner_input, shared(inner_input), name="inner")
    inputs = keras.Input((4,))
    outputs = layers.Dense(2)(inner(shared(shared(inputs))))
    return keras.Model(inputs, outputs)


def nested_sequential() -> keras.Model:
    inner = keras.Sequential([layers.Dense(3), layers.LeakyReLU()], name="inner")
    model = keras.Sequential([layers.Dense(4), inner, layers.Dense(2)], name="outer")
    model.build((None, 4))
    return model


def subclassed() -> keras.Model:
    model = Subclassed(name="mine")
    model(np.zeros((1, 4), "float32"))
    return model


def time_distributed() -> keras.Model:
    block = keras.Sequential([layers.Dense(3), layers.Dense(2)])
    return keras.Sequential([keras.Input((5, 4)), layers.TimeDistributed(block)])


def bidirectional() -> keras.Model:
    rnn = layers.Bidirectional(layers.LSTM(3))
    return keras.Sequential([keras.Input((5, 4)), rnn, layers.Dense(2)])


def stacked_cells() -> keras.Model:
    cell = layers.StackedRNNCells([layers.LSTMCell(3), layers.GRUCell(2)])
    return keras.Sequential([keras.Input((5, 4)), layers.RNN(cell)])


def attention() -> keras.Model:
    inputs = keras.Input((5, 4))
    attended = layers.MultiHeadAttention(2, 3, dropout=0.1, name="attend")(inputs, inputs)
    outputs = layers.Dense(2)(layers.LayerNormalization()(layers.Add()([inputs, attended])))
    return keras.Model(inputs, outputs)


def composite_without_dtype() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), WithoutDtype(3, name="block"), layers.Dense(2)])


def composite_with_dtype() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), WithDtype(3, name="block"), layers.Dense(2)])


def with_lambda() -> keras.Model:
    double = layers.Lambda(lambda x: keras.ops.relu(x) * 2.0)  # needs this module's `keras`
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), double, layers.Dense(2)])


def normalised_and_dropped() -> keras.Model:
    stack = [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(2)]
    return keras.Sequential([keras.Input((4,)), *stack])


def embedded() -> keras.Model:
    inputs = keras.Input((5,), dtype="int32")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(7, 3)(inputs))
    return keras.Model(inputs, layers.Dense(2)(pooled))


def spectral() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), layers.SpectralNormalization(layers.Dense(2))])


def operations_between() -> keras.Model:
    inputs = keras.Input((4,))
    x = layers.Dense(3)(inputs)
    x = keras.ops.add(x * 2, keras.ops.tanh(x)) - 0.5
    return keras.Model(inputs, layers.Dense(2)(x))


BUILDERS: Final[list[Builder]] = [
    functional,
    several_inputs_and_outputs,
    shared_layer,
    nested_sequential,
    subclassed,
    time_distributed,
    bidirectional,
    stacked_cells,
    attention,
    composite_without_dtype,
    composite_with_dtype,
    with_lambda,
    normalised_and_dropped,
    embedded,
    spectral,
    operations_between,
]


def built(builder: Builder, policy: str) -> keras.Model:
    """Builds under a policy, and puts float32 back."""
    keras.config.set_dtype_policy(policy)
    try:
        return builder()
    finally:
        keras.config.set_dtype_policy("float32")


def data_for(model: keras.Model, seed: int = 0) -> tuple[Any, Any]:
    """Random inputs and targets in the structures that a model takes and gives."""
    draw = np.random.default_rng(seed)

    def one(shape: Any, dtype: str) -> Any:
        size = (SAMPLES, *shape[1:])
        return draw.integers(0, 7, size) if dtype == "int32" else draw.random(size, "float32")

    if isinstance(model, Subclassed):
        return one((None, 4), "float32"), one((None, 2), "float32")
    inputs = {tensor.name: one(tensor.shape, tensor.dtype) for tensor in model.inputs}
    if len(inputs) == 1:
        return next(iter(inputs.values())), one(model.outputs[0].shape, "float32")
    targets = {key: one(tensor.shape, "float32") for key, tensor in model.output.items()}
    return inputs, targets


def trained(builder: Builder, policy: str, **arguments: Any) -> keras.Model:
    """Builds, compiles with Adam and makes two steps."""
    model = built(builder, policy)
    model.compile(**{"optimizer": keras.optimizers.Adam(0.01), "loss": "mse", **arguments})
    inputs, targets = data_for(model)
    for _ in range(2):
        model.train_on_batch(inputs, targets)
    return model
