"""Giving a built layer, and all that is in it, the float32 policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.errors import LayerError
from tf_amp_kit.precision.layer_policies import half_variables, set_float32
from tf_amp_kit.tracing.paths import LayerPaths


def attention() -> Any:
    layer = keras.layers.MultiHeadAttention(2, 4)
    layer.build((1, 3, 4), (1, 3, 4))
    return layer


def sequential() -> Any:
    layers = [keras.layers.LSTM(3), keras.Sequential([keras.layers.Dense(2)])]
    model = keras.Sequential(layers)
    model.build((None, 5, 4))
    return model


def spectral() -> Any:
    return keras.layers.SpectralNormalization(keras.layers.Dense(2))


def mapped() -> Any:
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_float16")
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype=policies)])


@pytest.mark.parametrize("make", [attention, sequential, spectral, mapped])
def test_all_sublayers_compute_in_float32(make: Callable[[], Any]) -> None:
    with amp.amp_scope("fp16"):
        layer = make()
    set_float32(layer)
    assert {sub.compute_dtype for _, sub in LayerPaths(layer)} == {"float32"}


def test_results_are_float32_at_once() -> None:
    layer = keras.layers.Dense(2, dtype="mixed_bfloat16")
    layer.build((None, 3))
    set_float32(layer)
    assert layer(tf.ones((1, 3), "bfloat16")).dtype.name == "float32"


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_other_dtypes_stay(dtype: str) -> None:
    layer = keras.layers.Rescaling(2.0, dtype=dtype)
    set_float32(layer)
    assert layer.compute_dtype == dtype


def test_a_quantized_layer_stays_quantized() -> None:
    layer = keras.layers.Dense(4, dtype="mixed_bfloat16")
    layer.build((None, 4))
    layer.quantize("int8")
    set_float32(layer)
    assert layer.dtype_policy.name == "int8_from_float32"
    assert layer(tf.ones((1, 4))).dtype.name == "float32"


def test_an_unbuilt_pure_half_layer_gets_float32_variables() -> None:
    layer = keras.layers.Dense(2, dtype="bfloat16")
    set_float32(layer)
    layer.build((None, 3))
    assert {variable.dtype for variable in layer.variables} == {"float32"}


def test_half_variables_are_named_and_refused() -> None:
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(2, dtype="mixed_float16"),
            keras.layers.Dense(2, dtype="float16", use_bias=False, name="head"),
        ],
        name="net",
    )
    assert [variable.path for variable in half_variables(model)] == ["net/head/kernel"]
    message = (
        "A layer that stores its variables in half precision cannot compute with float32 ones. "
        "Expected variables in float32. Received: layer='net' with 1 in half, 'net/head/kernel' "
        "first. Build it with dtype='float32' or a mixed policy, whose variables are float32."
    )
    with pytest.raises(LayerError, match=re.escape(message)):
        set_float32(model)
    assert model.layers[0].compute_dtype == "float16"


def test_a_float32_variable_that_reads_as_half_is_none() -> None:
    found = []

    class Layer(keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.scale = self.add_weight(shape=())

        def call(self, inputs: Any) -> Any:
            found.append((self.scale.dtype, half_variables(self)))
            return inputs * self.scale

    Layer(dtype="mixed_float16")(tf.ones((1, 2)))
    assert found == [("float16", [])]


def test_given_statistics_of_another_axis_are_cast_anew() -> None:
    layer = keras.layers.Normalization(
        axis=1, mean=[2011.0, 2013.0], variance=[1.0, 4.0], dtype="mixed_bfloat16"
    )
    try:
        layer.build((None, 2, 3))
    except tf.errors.InvalidArgumentError:
        pytest.skip("Keras 3.10 takes none of another axis than the last")
    set_float32(layer)
    values = np.full((1, 2, 3), 2015.0, "float32")
    np.testing.assert_array_equal(layer(values), [[[4.0] * 3, [1.0] * 3]])


def test_a_nested_model_no_longer_rounds_its_inputs() -> None:
    with amp.amp_scope("fp16"):
        model = keras.Sequential([keras.layers.Rescaling(0.5)])
        model.build((None, 1))
    set_float32(model)
    np.testing.assert_array_equal(model(np.array([[1e5]])), [[5e4]])


def test_a_wrapper_inside_gives_float32_results() -> None:
    with amp.amp_scope("fp16"):
        model = keras.Sequential([amp.layers.Float32(keras.layers.Dense(2))])
    set_float32(model)
    assert model.layers[0](tf.ones((1, 3), "float16")).dtype.name == "float32"
