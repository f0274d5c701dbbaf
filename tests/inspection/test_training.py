"""Losses that make `fit` raise: what the audit says is what Keras does."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from tf_amp_kit.inspection.audit import audit_layer_dtypes


class AddsLoss(layers.Layer):
    def call(self, inputs):
        self.add_loss(ops.mean(inputs))  # PLANTED
        return inputs


class AddsWideLoss(layers.Layer):
    def call(self, inputs):
        self.add_loss(ops.mean(ops.cast(inputs, "float32")))
        return inputs


RAISING = {
    "activity regularizer": lambda: layers.Dense(3, activity_regularizer="l2", name="loses"),
    "half add_loss": lambda: AddsLoss(name="loses"),
}
TRAINING = {
    "kernel regularizer": lambda: layers.Dense(3, kernel_regularizer="l2"),
    "float32 add_loss": lambda: AddsWideLoss(),
    "activity regularizer in float32": lambda: layers.Dense(
        3, activity_regularizer="l2", dtype="float32"
    ),
}


def compiled(make):
    model = keras.Sequential([keras.Input((4,)), make(), layers.Dense(1, dtype="float32")])
    model.compile("sgd", "mse")
    return model


def fit(model):
    model.fit(np.ones((4, 4), "float32"), np.ones((4, 1), "float32"), verbose=0)


def found(model):
    report = audit_layer_dtypes(model, verbose=0)
    return [one for one in report.findings if one.code == "AMP303"]


@pytest.mark.parametrize("name", RAISING)
def test_a_half_loss_is_found_before_fit_raises(name, half):
    model = compiled(RAISING[name])
    assert [one.path for one in found(model)] == ["loses"]
    with pytest.raises(TypeError, match=half):
        fit(model)


@pytest.mark.parametrize("name", TRAINING)
def test_a_float32_loss_is_no_finding_and_trains(name, half):
    model = compiled(TRAINING[name])
    assert found(model) == []
    fit(model)


def test_the_line_that_adds_the_loss_is_named(half):
    (one,) = found(compiled(RAISING["half add_loss"]))
    assert "# PLANTED" in one.source.text


def test_the_losses_of_an_earlier_call_stay(half):
    model = compiled(TRAINING["float32 add_loss"])
    model(np.full((2, 4), 3.0, "float32"))
    before = [float(loss) for loss in model.losses]
    audit_layer_dtypes(model, verbose=0)
    assert [float(loss) for loss in model.losses] == before == [3.0]


def half_weights(*made):
    model = keras.Sequential([keras.Input((4,)), *made])
    report = audit_layer_dtypes(model, verbose=0)
    return [(one.code, one.path, one.affects) for one in report.findings]


def test_half_weights_without_a_regularizer_lose_no_dtype_clash(half):
    keras.config.set_dtype_policy(half)
    assert "AMP303" not in [code for code, _, _ in half_weights(keras.layers.Dense(2))]


def test_the_layers_with_half_weights_are_told_one_by_one_in_one_finding(half):
    keras.config.set_dtype_policy(half)
    dense = keras.layers.Dense
    (only,) = [one for one in half_weights(dense(2, name="one")) if one[0] == "AMP302"]
    (both,) = [
        one for one in half_weights(dense(2, name="a"), dense(2, name="b")) if one[0] == "AMP302"
    ]
    assert only == ("AMP302", "one", ())
    assert both == ("AMP302", "", ("a", "b"))
