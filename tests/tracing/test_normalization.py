"""`Normalization` in a float32 trace of a mixed model: its statistics are float32 as well.

A mean of 100,000 is infinite in float16, and one of 1,000 is off by up to 1/4.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tf_amp_kit.data import Batch, batches_of
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS

MEANS, SPREADS = np.array([1e5, 1000.3, -3.0]), np.array([300.0, 0.5, 2.0])
RNG = np.random.default_rng(0)
X = (MEANS + SPREADS * RNG.normal(size=(64, 3))).astype(np.float32)
Y = RNG.normal(size=(64, 1)).astype(np.float32)


def given(dtype: str) -> layers.Layer:
    return layers.Normalization(
        mean=MEANS.tolist(), variance=(SPREADS**2).tolist(), name="norm", dtype=dtype
    )


def given_one_number(dtype: str) -> layers.Layer:
    return layers.Normalization(axis=None, mean=1e5, variance=9e4, name="norm", dtype=dtype)


def adapted(dtype: str) -> layers.Layer:
    layer = layers.Normalization(name="norm", dtype=dtype)
    layer.adapt(X)
    return layer


def inverted(dtype: str) -> layers.Layer:
    layer = layers.Normalization(name="norm", dtype=dtype, invert=True)
    layer.adapt(X)
    return layer


WAYS = [given, given_one_number, adapted, inverted]


def model_of(way: Any, dtype: str) -> keras.Model:
    """The same head each time; its inputs are float32, whatever the layers compute in."""
    head = layers.Dense(1, name="head", dtype=dtype, kernel_initializer="ones")
    inputs = keras.Input((3,), dtype="float32")
    model = keras.Model(inputs, head(way(dtype)(inputs)))
    model.compile("sgd", "mse")
    return model


def in_float32(model: keras.Model, held: Any = True) -> Any:
    step = trace_step(model, (X,), in_float32=held, until=OUTPUTS, training=False)
    (key,) = step.model_outputs.values()
    compute = StepRunner(step).function([step.reader.symbolic[key]])
    (batch,) = batches_of((X,), None)
    (found,) = compute(Batch(batch.x), 1.0)
    return found.numpy()


@pytest.mark.parametrize("way", WAYS)
def test_it_computes_what_a_float32_model_does(way):
    expected = np.asarray(model_of(way, "float32")(X))
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(in_float32(model_of(way, "mixed_float16")), expected, rtol=1e-6)


@pytest.mark.parametrize("way", [given, adapted])
def test_it_does_so_if_it_alone_is_held_in_float32(way):
    model = model_of(way, "mixed_float16")
    # By hand: what is left is the rounding of three halves, and of their sum.
    mean, variance = (
        (MEANS, SPREADS**2) if way is given else (X.mean(0, np.float64), X.var(0, np.float64))
    )
    expected = ((X - mean) / np.sqrt(variance)).sum(axis=1, keepdims=True)
    found = in_float32(model, [model.get_layer("norm")])
    np.testing.assert_allclose(found, expected, atol=0.01)


@pytest.mark.parametrize("way", WAYS)
def test_the_layer_keeps_the_statistics_that_it_had(way):
    model = model_of(way, "mixed_float16")
    layer = model.get_layer("norm")
    before = {**vars(layer)}
    in_float32(model)
    assert vars(layer).keys() == before.keys()
    assert layer.mean is before["mean"] and layer.variance is before["variance"]
    assert layer.mean.dtype == "float16"


@pytest.mark.parametrize("way", WAYS)
def test_half_precision_is_as_wrong_as_it_was(way):
    # It is the model's fault, and to be found: nothing of float32 stays.
    model = model_of(way, "mixed_float16")
    before = np.asarray(model(X), np.float32)
    in_float32(model)
    np.testing.assert_array_equal(np.asarray(model(X), np.float32), before)
    assert not np.isfinite(before).all()


def test_statistics_that_fit_are_no_finding_of_a_search_for_nan():
    def small(dtype: str) -> layers.Layer:
        return layers.Normalization(mean=[3.0] * 3, variance=[4.0] * 3, name="norm", dtype=dtype)

    data = (X - MEANS).clip(-6, 6).astype(np.float32), Y
    report = amp.find_nonfinite(model_of(small, "mixed_float16"), data, verbose=0)
    assert report.origin is None


def test_a_search_for_nan_finds_statistics_that_do_not():
    report = amp.find_nonfinite(model_of(given, "mixed_float16"), (X, Y), verbose=0)
    assert report.origin is not None and report.origin.path == "norm"
    assert report.in_float32 is False


@pytest.mark.parametrize("way", [given, adapted])
def test_gradients_of_float32_are_finite_beside_those_of_half(way):
    comparison = amp.compare_gradients(model_of(way, "mixed_float16"), (X, Y), verbose=0)
    assert np.isfinite([one.float32.rms for one in comparison.pairs]).all()
    assert comparison.whole.num_nonfinite > 0


def test_gradients_with_statistics_that_fit_are_close():
    def small(dtype: str) -> layers.Layer:
        return layers.Normalization(mean=[1.0] * 3, variance=[4.0] * 3, name="norm", dtype=dtype)

    data = (X - MEANS).clip(-6, 6).astype(np.float32), Y
    comparison = amp.compare_gradients(model_of(small, "mixed_float16"), data, verbose=0)
    assert comparison.whole.cosine > 0.999
