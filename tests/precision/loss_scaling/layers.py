"""Layers with state of their own, as users write them."""

from __future__ import annotations

from typing import Any

import keras


class RunningMean(keras.layers.Layer):
    """Subtracts a mean that it updates while it trains, like a BatchNormalization."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=shape[-1:], initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            mean = keras.ops.cast(keras.ops.mean(inputs, axis=0), self.mean.dtype)
            self.mean.assign(0.5 * self.mean.value + 0.5 * mean)
        return inputs - keras.ops.cast(self.mean.value, inputs.dtype)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class Codebook(keras.layers.Layer):
    """Updates a codebook in every call, without asking whether it trains."""

    def build(self, shape: Any) -> None:
        self.codes = keras.Variable(keras.ops.ones(shape[-1:]), trainable=False, name="codes")

    def call(self, inputs: Any) -> Any:
        self.codes.assign(0.9 * self.codes + 0.1 * keras.ops.mean(inputs, axis=0))
        return inputs + self.codes

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class Sublayers(keras.layers.Layer):
    """Holds layers in a list, a dict and an attribute."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.listed = [keras.layers.BatchNormalization(), [RunningMean()]]
        self.named = {"norm": keras.layers.BatchNormalization(momentum=0.5)}
        self.last = RunningMean()

    def build(self, shape: Any) -> None:
        for layer in self._all():
            layer.build(shape)

    def call(self, inputs: Any, training: bool = False) -> Any:
        for layer in self._all():
            inputs = layer(inputs, training=training)
        return inputs

    def _all(self) -> list[Any]:
        return [self.listed[0], self.listed[1][0], self.named["norm"], self.last]
