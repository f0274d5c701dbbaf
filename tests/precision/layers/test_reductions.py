"""Reductions and the logarithm of softmax, against NumPy in float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.layers.cases import HALVES, long_window, normal, wide_range
from tests.precision.layers.helpers import rounded

layers = amp.layers


def logsumexp(x: Any, axis: Any) -> Any:
    top = x.max(axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.exp(x - top).sum(axis))


def log_softmax(x: Any, axis: Any) -> Any:
    return x - np.expand_dims(logsumexp(x, axis), axis)


LONG = long_window(2, 4096)
# Sums of squares that leave float16, next to some that it has no numbers for.
WIDE = np.stack([wide_range(4096), np.full(4096, 1e-6, "float32")])
LOGITS = normal(2, 4096, factor=100.0)

# The layer, what it computes in float64, the input, and where half is wrong.
CASES = [
    (layers.Sum, keras.ops.sum, np.sum, LONG, ("float16",)),
    (layers.Mean, keras.ops.mean, np.mean, LONG, ()),
    (layers.Variance, keras.ops.var, np.var, WIDE, ()),
    (layers.Norm, keras.ops.norm, np.linalg.norm, WIDE, ("float16",)),
    (layers.CumSum, keras.ops.cumsum, np.cumsum, LONG, HALVES),
    (layers.LogSumExp, keras.ops.logsumexp, logsumexp, LOGITS, ()),
    (layers.LogSoftmax, keras.ops.log_softmax, log_softmax, LOGITS, ()),
]
IDS = [layer.__name__ for layer, *_ in CASES]
by_half = pytest.mark.parametrize("dtype", HALVES)


@by_half
@pytest.mark.parametrize(("layer", "exact", "x"), [(c[0], c[2], c[3]) for c in CASES], ids=IDS)
def test_results_are_those_of_float32(
    layer: Any, exact: Callable[..., Any], x: np.ndarray, dtype: str
) -> None:
    with amp.amp_scope(dtype):
        found = layer(axis=-1)(tf.cast(x, dtype))
    expected = exact(rounded(x, dtype).astype("float64"), axis=-1)
    assert found.dtype.name == "float32"
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@by_half
@pytest.mark.parametrize(("layer", "function", "x"), [(c[0], c[1], c[3]) for c in CASES], ids=IDS)
def test_gradients_are_those_of_a_float32_program(
    layer: Any, function: Callable[..., Any], x: np.ndarray, dtype: str
) -> None:
    half = tf.cast(x, dtype)
    wide = tf.cast(half, "float32")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([half, wide])
        found = tf.reduce_sum(layer(axis=-1)(half))
        expected = tf.reduce_sum(function(wide, axis=-1))
    np.testing.assert_array_equal(
        tape.gradient(found, half), tf.cast(tape.gradient(expected, wide), dtype)
    )


@pytest.mark.parametrize(
    ("function", "exact", "x", "dtype"),
    [(*case[1:4], dtype) for case in CASES for dtype in case[4]],
)
def test_the_function_itself_breaks_in_half(
    function: Any, exact: Callable[..., Any], x: np.ndarray, dtype: str
) -> None:
    found = np.asarray(tf.cast(function(tf.cast(x, dtype), axis=-1), "float64"))
    expected = exact(rounded(x, dtype).astype("float64"), axis=-1)
    assert not np.allclose(found, expected, rtol=0.1)


@pytest.mark.parametrize("layer", [c[0] for c in CASES], ids=IDS)
def test_results_come_back_where_asked_for(layer: Any) -> None:
    x = normal(2, 3)
    with amp.amp_scope("bf16"):
        back = layer(axis=-1, output="compute")
    assert back(x).dtype.name == "bfloat16"
    np.testing.assert_array_equal(back(x), tf.cast(layer(axis=-1)(x), "bfloat16"))
    assert layer(axis=-1, output="compute", dtype="mixed_float16")(x).dtype.name == "float16"


@pytest.mark.parametrize("layer", [c[0] for c in CASES], ids=IDS)
@pytest.mark.parametrize("output", ["float32", "compute"])
def test_the_symbolic_result_is_what_comes(layer: Any, output: str) -> None:
    with amp.amp_scope("fp16"):
        inputs = keras.Input((3, 4))
        outputs = layer(axis=1, output=output)(inputs)
        found = keras.Model(inputs, outputs)(normal(2, 3, 4))
    assert (outputs.dtype, outputs.shape[1:]) == (found.dtype.name, found.shape[1:])


@pytest.mark.parametrize(
    ("layer", "function"),
    [(layers.Sum, np.sum), (layers.Mean, np.mean), (layers.Norm, np.linalg.norm)],
)
def test_axis_and_keepdims_mean_what_keras_means(layer: Any, function: Any) -> None:
    x = normal(2, 3, 4)
    for arguments in ({"axis": 1}, {"axis": (1, 2)}, {"axis": 2, "keepdims": True}):
        np.testing.assert_allclose(layer(**arguments)(x), function(x, **arguments), rtol=1e-5)
    assert layers.Sum()(x).shape == ()


def test_a_norm_takes_an_order() -> None:
    assert float(layers.Norm(ord=1)(tf.constant([3.0, -4.0]))) == 7.0


def test_a_mask_goes_on_behind_log_softmax() -> None:
    ids = np.array([[1, 2, 0]])
    embedding = keras.layers.Embedding(5, 4, mask_zero=True)
    lstm = keras.layers.LSTM(2)
    x = layers.LogSoftmax()(embedding(ids))
    np.testing.assert_array_equal(lstm(x), lstm(x[:, :2]))


@pytest.mark.parametrize("layer", [c[0] for c in CASES], ids=IDS)
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["bare", "wrapped"])
def test_a_time_distributed_one_stands_in_a_model(layer: Any, is_wrapped: bool) -> None:
    with amp.amp_scope("fp16"):
        one = layer(axis=-1)
        one = layers.Float32(one) if is_wrapped else one
        model = keras.Sequential([keras.Input((3, 4)), keras.layers.TimeDistributed(one)])
    x = normal(2, 3, 4)
    expected = layer(axis=-1)(x).shape
    assert model.output_shape == (None, *expected[1:])
    assert model(x).shape == expected


@pytest.mark.parametrize(
    ("layer", "arguments", "shape"),
    [
        (layers.Sum, {"axis": (1, 2)}, (None, 3)),
        (layers.Sum, {"axis": 1, "keepdims": True}, (None, 1, 4, 3)),
        (layers.Mean, {"axis": None}, ()),
        (layers.Norm, {"axis": -1, "ord": 1}, (None, 5, 4)),
        (layers.CumSum, {"axis": 1}, (None, 5, 4, 3)),
        (layers.LogSoftmax, {}, (None, 5, 4, 3)),
    ],
)
def test_the_shape_of_a_result_is_told_without_a_call(
    layer: Any, arguments: dict[str, Any], shape: tuple[int | None, ...]
) -> None:
    assert layer(**arguments).compute_output_shape((None, 5, 4, 3)) == shape


def test_in_time_distributed_it_is_float32_too() -> None:
    with amp.amp_scope("fp16"):
        layer = keras.layers.TimeDistributed(layers.Sum(axis=-1), dtype="mixed_float16")
        x = tf.concat([tf.fill((1, 2, 4096), 300.0), tf.fill((1, 2, 4096), -300.0)], -1)
        assert layer(tf.cast(x, "float16")).numpy().tolist() == [[0.0, 0.0]]


def test_an_unknown_output_is_refused() -> None:
    message = "Unknown output. Expected 'compute', for the compute dtype, or 'float32'. Received: "
    with pytest.raises(amp.errors.LayerError, match=re.escape(f"{message}output='half'.")):
        layers.Sum(output="half")
