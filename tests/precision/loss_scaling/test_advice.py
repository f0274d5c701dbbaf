"""State that a skip would not give back is told of once, and only where there is some."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import GOOD, LABELS, MODES, fit, scaled, told
from tests.precision.loss_scaling.layers import RunningMean

layers = keras.layers

ONE_LAYER = (
    "1 layer keeps moving statistics, which a skipped step leaves as the bad batch made them: "
    "batch_normalization. Pass callbacks=[AmpMonitor()] to fit, or call optimizer.protect(model) "
    "before training."
)


def model_with(*chain: Any, **how: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), *chain, layers.Dense(1)])
    model.compile(scaled(), "mse", **(how or {"run_eagerly": True}))
    return model


def warnings_of_fit(model: keras.Model, caught: Any) -> list[str]:
    fit(model, GOOD), fit(model, GOOD)
    return told(caught)


@pytest.mark.parametrize("mode", MODES)
def test_fit_with_nothing_protected_is_told_of_batch_normalization_once(
    mode: str, caught: Any
) -> None:
    how = {"run_eagerly": mode == "eager", "jit_compile": mode == "jit"}
    model = model_with(layers.BatchNormalization(), **how)
    assert warnings_of_fit(model, caught) == [ONE_LAYER]


def test_train_on_batch_is_told_too(caught: Any) -> None:
    model = model_with(layers.BatchNormalization())
    model.train_on_batch(GOOD, LABELS)
    model.train_on_batch(GOOD, LABELS)
    assert told(caught) == [ONE_LAYER]


def test_a_model_that_was_compiled_again_with_another_optimizer_is_told_again(caught: Any) -> None:
    model = model_with(layers.BatchNormalization())
    fit(model, GOOD)
    model.compile(scaled(), "mse", run_eagerly=True)
    fit(model, GOOD)
    assert told(caught) == [ONE_LAYER] * 2


def test_three_layers_stand_for_more(caught: Any) -> None:
    model = model_with(*[layers.BatchNormalization(name=f"norm_{letter}") for letter in "abcd"])
    (message,) = warnings_of_fit(model, caught)
    assert message.startswith("4 layers keep moving statistics, which a skipped step leaves")
    assert re.search(r": norm_a, norm_b, norm_c and more\. Pass", message)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [RunningMean()],
        lambda: [layers.SpectralNormalization(layers.Dense(2))],
        lambda: [keras.Sequential([layers.BatchNormalization()])],
    ],
    ids=["layer of one's own", "spectral norm", "nested"],
)
def test_anything_like_batch_normalization_is_told_of(
    make: Callable[[], list[Any]], caught: Any
) -> None:
    (message,) = warnings_of_fit(model_with(*make()), caught)
    assert message.startswith("1 layer keeps moving statistics")


@pytest.mark.parametrize(
    "make",
    [
        list,
        lambda: [layers.Normalization(mean=[0.0, 0.0], variance=[1.0, 1.0])],
        lambda: [layers.Dropout(0.5), layers.GaussianNoise(0.1)],
        lambda: [layers.LayerNormalization(), layers.GroupNormalization(1)],
        lambda: [layers.BatchNormalization(trainable=False)],
        lambda: [layers.UnitNormalization()],
    ],
    ids=["nothing", "Normalization", "random", "other norms", "frozen", "without state"],
)
def test_a_model_without_moving_statistics_is_not_told(
    make: Callable[[], list[Any]], caught: Any
) -> None:
    assert warnings_of_fit(model_with(*make()), caught) == []


def test_an_adapted_normalization_is_not_told_of(caught: Any) -> None:
    normalization = layers.Normalization()
    normalization.adapt(GOOD)
    assert warnings_of_fit(model_with(normalization), caught) == []


def test_a_model_frozen_as_a_whole_is_not_told_of(caught: Any) -> None:
    backbone = keras.Sequential([keras.Input((2,)), layers.Dense(2), layers.BatchNormalization()])
    backbone.trainable = False
    assert warnings_of_fit(model_with(backbone), caught) == []


@pytest.mark.parametrize("run_eagerly", [True, False])
def test_a_protected_model_is_not_told(run_eagerly: bool, caught: Any) -> None:
    model = model_with(layers.BatchNormalization(), run_eagerly=run_eagerly)
    model.optimizer.protect(model)
    assert warnings_of_fit(model, caught) == []


def test_who_protects_something_is_not_told_of_the_rest(caught: Any) -> None:
    first, second = (layers.BatchNormalization(name=name) for name in ("first", "second"))
    model = model_with(first, second)
    model.optimizer.protect(first)
    assert warnings_of_fit(model, caught) == []


def test_protection_by_variables_counts(caught: Any) -> None:
    model = model_with(layers.BatchNormalization())
    model.optimizer.protect(model.non_trainable_variables)
    assert warnings_of_fit(model, caught) == []


def test_a_plain_optimizer_is_not_told_of_anything(caught: Any) -> None:
    model = model_with(layers.BatchNormalization())
    model.compile(amp.make_loss_scale_optimizer("sgd", precision="bf16"), "mse")
    assert warnings_of_fit(model, caught) == []


def test_a_loop_of_ones_own_is_not_told(caught: Any) -> None:
    # Nobody knows here which model it is.
    norm, weight, optimizer = layers.BatchNormalization(), keras.Variable([1.0]), scaled()
    norm.build((None, 2))
    with tf.GradientTape() as tape:
        outputs = norm(GOOD, training=True) * weight.value
        loss = optimizer.scale_loss(tf.reduce_mean(outputs**2))
    optimizer.apply(tape.gradient(loss, [weight.value]), [weight])
    assert told(caught) == []


def test_scaling_by_fit_is_seen(caught: Any) -> None:
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    model.compile(amp.LossScaleOptimizer(keras.optimizers.SGD()), "mse")
    fit(model, GOOD)
    assert told(caught) == []
    assert np.isfinite(model.get_weights()[0]).all()
