"""`Float32` and the reductions in files, clones and configs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.layers.cases import normal
from tests.precision.layers.layers import MadeInBuild, MadeInInit
from tf_amp_kit.tracing.paths import LayerPaths

layers = amp.layers
Float32 = amp.layers.Float32

X = normal(2, 5, 4)


def dense() -> list[Any]:
    return [Float32(keras.layers.Dense(3)), layers.Mean(axis=1), layers.LogSoftmax()]


def recurrent() -> list[Any]:
    return [
        keras.layers.RNN(
            [Float32(keras.layers.LSTMCell(3)), keras.layers.GRUCell(2)], return_sequences=True
        ),
        Float32(keras.layers.Bidirectional(keras.layers.LSTM(2, return_sequences=True))),
        Float32(keras.layers.GRU(3), output="float32"),
    ]


def nested() -> list[Any]:
    inner = keras.Sequential([keras.layers.Dense(3), Float32(keras.layers.UnitNormalization())])
    return [Float32(inner), keras.layers.TimeDistributed(Float32(keras.layers.Dense(2)))]


def composite() -> list[Any]:
    return [
        Float32(MadeInBuild()),
        Float32(MadeInInit(), output="float32"),
        layers.Norm(ord=1, axis=(1,), keepdims=True, output="compute"),
        layers.Variance(axis=2, dtype="mixed_float16", output="compute"),
    ]


def attention() -> list[Any]:
    return [Float32(Itself(keras.layers.MultiHeadAttention(2, 3))), layers.CumSum(axis=1)]


@keras.saving.register_keras_serializable("tests")
class Itself(keras.layers.Wrapper):
    """Calls a layer on an input twice."""

    def build(self, input_shape: Any) -> None:
        if not self.layer.built:
            self.layer.build(input_shape, input_shape)

    def call(self, inputs: Any) -> Any:
        return self.layer(inputs, inputs)


def made(make: Callable[[], list[Any]], policy: str) -> Any:
    keras.config.set_dtype_policy(policy)
    return keras.Sequential([keras.Input((5, 4)), *make()])


def config(model: Any) -> str:
    # Without the policy of the Sequential model itself, which Keras does not restore.
    return json.dumps(model.get_config()["layers"], sort_keys=True)


by_model = pytest.mark.parametrize("make", [dense, recurrent, nested, composite, attention])
by_policy = pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
# What a file is opened under is not what it was made under.
by_later = pytest.mark.parametrize("later", ["float32", "mixed_float16", "bfloat16"])

pytestmark = [
    pytest.mark.usefixtures("_custom_layers"),
    # Keras says so of composites without `build`, when it loads them.
    pytest.mark.filterwarnings("ignore:.build... was called on layer"),
]


@pytest.fixture
def _custom_layers() -> Any:
    with keras.saving.custom_object_scope({"MadeInInit": MadeInInit, "MadeInBuild": MadeInBuild}):
        yield


@by_later
@by_policy
@by_model
def test_a_saved_model_gives_the_same_results(
    make: Callable[[], list[Any]], policy: str, later: str, tmp_path: Path
) -> None:
    model = made(make, policy)
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy(later)
    loaded = keras.models.load_model(tmp_path / "model.keras")
    found, expected = loaded(X), model(X)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@by_later
@by_policy
@by_model
def test_a_second_file_has_the_config_of_the_first(
    make: Callable[[], list[Any]], policy: str, later: str, tmp_path: Path
) -> None:
    model = made(make, policy)
    model.save(tmp_path / "first.keras")
    keras.config.set_dtype_policy(later)
    first = keras.models.load_model(tmp_path / "first.keras")
    first.save(tmp_path / "second.keras")
    second = keras.models.load_model(tmp_path / "second.keras")
    assert config(model) == config(first) == config(second)


@by_model
def test_a_clone_has_the_same_config_and_float32_inside(make: Callable[[], list[Any]]) -> None:
    model = made(make, "mixed_float16")
    keras.config.set_dtype_policy("mixed_bfloat16")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert config(clone) == config(model)
    np.testing.assert_array_equal(clone(X), model(X))
    inside = [
        sub for layer in clone.layers if type(layer) is Float32 for _, sub in LayerPaths(layer)
    ]
    assert all(sub.compute_dtype == "float32" for sub in inside)


@by_model
def test_weights_go_out_to_a_file_and_in_again(
    make: Callable[[], list[Any]], tmp_path: Path
) -> None:
    model = made(make, "mixed_bfloat16")
    model.save_weights(tmp_path / "w.weights.h5")
    other = made(make, "mixed_bfloat16")
    other.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_array_equal(other(X), model(X))


def test_weights_of_the_layer_alone_are_those_of_the_wrapper() -> None:
    layer = keras.layers.Dense(3)
    wrapper = Float32(layer)
    wrapper.build((None, 4))
    for one, other in zip(wrapper.weights, layer.weights, strict=True):
        assert one is other


def test_the_layer_in_the_config_has_the_float32_policy() -> None:
    model = keras.Sequential([keras.layers.Dense(3, dtype="mixed_float16")])
    inner = Float32(model).get_config()["layer"]["config"]["layers"]
    assert [layer["config"]["dtype"]["config"]["name"] for layer in inner] == ["float32"]


def test_the_config_keeps_output_and_dtype() -> None:
    layer = Float32(keras.layers.Dense(3), output="float32", dtype="mixed_float16", name="head")
    again = Float32.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.name == "head"
    assert layer.get_config()["dtype"]["config"]["name"] == "mixed_float16"
    assert layer.get_config()["output"] == "float32"


def test_from_config_leaves_the_config_as_it_is() -> None:
    config = Float32(keras.layers.Dense(3)).get_config()
    Float32.from_config(config)
    assert "layer" in config


def test_a_model_with_it_is_exported(tmp_path: Path) -> None:
    model = made(dense, "mixed_bfloat16")
    expected = model(X)
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(tmp_path / "served")
    np.testing.assert_array_equal(served.serve(X), expected)
