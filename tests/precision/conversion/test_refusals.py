"""Models that cannot be converted are refused, with the layer and the way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.conversion.helpers import bits, policies
from tests.precision.conversion.models import functional, trained
from tests.precision.conversion.test_policies import Hard
from tf_amp_kit.errors import ConversionError


class OfALayer(keras.Model):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs)


class OfNoConfig(layers.Layer):
    def __init__(self, thing: object) -> None:
        super().__init__()
        self.thing = thing

    def call(self, inputs: Any) -> Any:
        return inputs


class RaisesInConfig(layers.Dense):
    def get_config(self) -> dict[str, Any]:
        raise RuntimeError("Not after training.")


class TellsAnotherSize(layers.Dense):
    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": 5}


class ForgetsALayer(keras.Model):
    def __init__(self, num_layers: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stack = [layers.Dense(2) for _ in range(num_layers)]

    def call(self, inputs: Any) -> Any:
        for layer in self.stack:
            inputs = layer(inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}


class BecomesAnother(layers.Dense):
    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return layers.Dense.from_config(config)


class PureHalf(Hard):
    policy = "float16"


def called(model: keras.Model) -> keras.Model:
    model(np.zeros((1, 2), "float32"))
    return model


def stacked(layer: Any) -> keras.Model:
    return keras.Sequential([keras.Input((2,)), layer])


def quantized() -> keras.Model:
    model = functional()
    model.layers[1].quantize("int8")
    return model


REFUSED: list[tuple[Callable[[], keras.Model], str]] = [
    (
        lambda: called(OfALayer(layers.Dense(2))),
        r"cannot be made from its own config: .*Received: the model of class OfALayer\..*"
        r"build the model by code under the new policy.*set_weights\(\)",
    ),
    (
        lambda: stacked(OfNoConfig(object())),
        r"Received: the layer 'of_no_config' of class OfNoConfig\.",
    ),
    (
        lambda: stacked(RaisesInConfig(2)),
        r"own config: Not after training\. .*Received: the layer 'raises_in_config' of class",
    ),
    (
        lambda: stacked(TellsAnotherSize(2)),
        r"The config of layer 'tells_another_size' of class TellsAnotherSize makes other weights\. "
        r"Expected .*\(2, 2\).* Received: .*\(2, 5\)",
    ),
    (lambda: called(ForgetsALayer(2)), r"makes no layer 'stack/1' of class Dense"),
    (
        lambda: stacked(BecomesAnother(2, name="x")),
        r"makes another layer 'x'\. Expected BecomesAnother 'x'\. Received: Dense 'x'",
    ),
    (
        lambda: stacked(PureHalf(name="hard")),
        r"The code of the model makes the layer 'hard/inner' of class Dense with the policy "
        r"'float16', whatever the config says\. Expected 'float32'",
    ),
    (quantized, r"the layer 'dense' with the policy 'int8_from_float32'.*before `model.quantize"),
]


@pytest.mark.parametrize(("builder", "message"), REFUSED)
def test_what_cannot_be_converted_is_named(
    builder: Callable[[], keras.Model], message: str
) -> None:
    model = builder()
    with pytest.raises(ConversionError, match=message):
        amp.to_float32(model)
    assert keras.config.dtype_policy().name == "float32"


def test_a_refused_model_stays_as_it_was() -> None:
    model = called(ForgetsALayer(2))
    before = bits(model.get_weights()), policies(model)
    with pytest.raises(ConversionError, match=re.escape("makes no layer 'stack/1'")):
        amp.convert_model(model, "bf16")
    assert (bits(model.get_weights()), policies(model)) == before


def test_what_a_compile_config_would_not_take_is_no_hindrance() -> None:
    class Loss:
        def __call__(self, target: Any, output: Any) -> Any:
            return keras.ops.mean(keras.ops.square(target - output))

    model = trained(functional, "float32", loss=Loss())
    assert amp.convert_model(model, "bf16").loss is model.loss
