"""The state of models as arrays, and distances computed on paper."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tf_amp_kit.comparison.training.record.parts import Drift
from tf_amp_kit.comparison.training.running.states import (
    all_variables,
    as_arrays,
    drift_between,
)

START = [np.array([0.0, 0.0]), np.array([[1.0]])]
THERE = [np.array([3.0, 0.0]), np.array([[5.0]])]


def test_drift_is_over_the_norm_and_over_the_way() -> None:
    here = [np.array([3.0, 1.5]), np.array([[7.0]])]
    # Apart: sqrt(2.25 + 4) = 2.5. Norm: sqrt(9 + 25). Way: sqrt(9 + 16) = 5.
    assert drift_between(7, here, THERE, START) == Drift(7, 2.5 / math.sqrt(34), 0.5)


def test_equal_weights_have_no_drift() -> None:
    assert drift_between(7, THERE, THERE, START) == Drift(7, 0.0, 0.0)


def test_weights_that_did_not_move_have_no_way() -> None:
    drift = drift_between(7, THERE, START, START)
    assert (drift.relative, math.isnan(drift.of_the_way)) == (5.0, True)


def test_weights_of_zeros_have_no_norm() -> None:
    zeros = [np.zeros(3)]
    drift = drift_between(7, [np.ones(3)], zeros, zeros)
    assert math.isnan(drift.relative)


def test_drift_is_summed_in_float64() -> None:
    one, other = np.full(3, 1e30, "float32"), np.full(3, 2e30, "float32")
    assert drift_between(7, [one], [other], [one]).of_the_way == pytest.approx(1.0)


def test_integers_have_no_part_in_drift() -> None:
    weights = [np.array([1.0]), np.array([5])]
    there, start = [np.array([1.0]), np.array([9])], [np.array([0.0]), np.array([0])]
    assert drift_between(7, weights, there, start) == Drift(7, 0.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_drift_of_weights_that_are_not_finite_is_not_finite(bad: float) -> None:
    drift = drift_between(7, [np.array([bad, 0.0]), THERE[1]], THERE, START)
    assert not math.isfinite(drift.relative)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_becomes_float32_without_loss(dtype: str) -> None:
    variable = keras.Variable([1.0, 0.00390625, 192.0], dtype=dtype)
    (array,) = as_arrays([variable])
    assert (array.dtype, array.tolist()) == (np.float32, [1.0, 0.00390625, 192.0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint32", "bool"])
def test_other_dtypes_stay(dtype: str) -> None:
    (array,) = as_arrays([keras.Variable([1, 0], dtype=dtype)])
    assert array.dtype == dtype


def test_all_that_a_run_goes_on_from_is_there() -> None:
    stack = [layers.Dense(2), layers.BatchNormalization(), layers.Dropout(0.5)]
    model = keras.Sequential([keras.Input((3,)), *stack])
    model.compile(amp.LossScaleOptimizer(keras.optimizers.Adam()), "mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)
    model.optimizer.protect(model)
    model.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))
    found = {id(one) for one in all_variables(model)}
    expected = [
        *model.weights,
        *(one for layer in model.layers for one in layer.variables),
        *model.optimizer.variables,
        *model.optimizer.inner_optimizer.variables,
    ]
    assert {id(one) for one in expected} <= found
