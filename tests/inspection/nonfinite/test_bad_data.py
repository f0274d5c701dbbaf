"""NaN and Inf that were there before the step: told first, unless they reach nothing."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import ONES, Apply, chain, dense, fault, place, place_on, report_on

pytestmark = pytest.mark.usefixtures("float16")

NAN = ONES.copy()
NAN[1, 2] = np.nan
INF = ONES.copy()
INF[3, 0] = -np.inf


@pytest.mark.parametrize("bad", [NAN, INF], ids=["NaN", "Inf"])
def test_inputs_are_told_before_all_that_they_spoil(bad):
    assert place_on(chain(dense()), bad) == ("@input/0", "", "forward")


@pytest.mark.parametrize("bad", [NAN, INF], ids=["NaN", "Inf"])
def test_targets_are_told(bad):
    assert place_on(chain(dense()), ONES, bad) == ("@target/0", "", "forward")


def test_sample_weights_are_told():
    weights = np.array([1, 1, np.inf, 1], "float32")
    report = report_on(chain(dense()), (ONES, ONES, weights), None)
    assert place(report) == ("@sample_weight/0", "", "forward")


def test_one_of_several_inputs_is_told_by_its_key():
    inputs = {key: keras.Input((4,), name=key) for key in ("a", "b")}
    model = keras.Model(inputs, dense()(layers.Add()([*inputs.values()])))
    model.compile("sgd", "mse")
    assert place_on(model, {"a": NAN, "b": ONES}) == ("@input/a", "", "forward")


def test_one_of_several_targets_is_told_by_its_key():
    inputs = keras.Input((4,))
    heads = {key: dense(name=key)(inputs) for key in ("p", "q")}
    model = keras.Model(inputs, heads)
    model.compile("sgd", "mse")
    assert place_on(model, ONES, {"p": ONES, "q": NAN}) == ("@target/q", "", "forward")


def test_elements_of_data_are_counted():
    assert report_on(chain(dense()), NAN).origin.reason == (
        "The data hold 1 NaN of 16 elements before the step begins."
    )


def test_of_bad_data_no_precision_is_asked():
    assert report_on(chain(dense()), NAN).in_float32 is None


def test_a_weight_is_told_by_its_path():
    model = chain(dense())
    model.get_layer("head").kernel.assign(NAN)
    assert place_on(model) == ("head/kernel", "", "forward")


def test_elements_of_a_weight_are_counted():
    model = chain(dense())
    model.get_layer("head").kernel.assign(INF)
    assert report_on(model).origin.reason == (
        "The variable holds 1 infinite of 16 elements before the step begins."
    )


def test_moving_statistics_are_told_by_their_path():
    model = chain(layers.BatchNormalization(name="bn"), dense())
    model.get_layer("bn").moving_variance.assign([1, np.nan, 1, 1])
    assert place_on(model) == ("bn/moving_variance", "", "forward")


def test_moving_statistics_do_not_count_as_a_metric():
    model = chain(layers.BatchNormalization(name="bn"), dense())
    model.get_layer("bn").moving_variance.assign([1, np.nan, 1, 1])
    report = report_on(model)
    assert (report.reached, report.notes) == (("bn/moving_variance",), ())


def test_data_are_told_before_a_fault_of_a_layer():
    grown = fault(lambda x: ops.exp(x * 12))
    assert place_on(chain(grown, dense()), NAN) == ("@input/0", "", "forward")


def test_a_fault_that_comes_of_finite_data_alone_is_told_where_the_bad_ones_reach_nothing():
    bad_rows = np.full((4, 4), np.nan, "float32")
    bad_rows[0] = 1
    cleaned = fault(lambda x: ops.exp(ops.where(ops.isnan(x), ops.zeros_like(x), x) * 12))
    model = chain(cleaned, dense())
    assert place_on(model, bad_rows) == ("fault", "Exp", "forward")


def test_a_nan_that_a_selection_leaves_is_nothing():
    cleaned = Apply(lambda x: ops.where(ops.isnan(x), ops.zeros_like(x), x), name="cleaned")
    assert report_on(chain(cleaned, dense()), NAN).notes == ()


class First(layers.Layer):
    def call(self, first, second):
        return first * 1


def test_a_nan_in_an_input_that_is_not_used_is_nothing():
    inputs = {key: keras.Input((4,), name=key) for key in ("a", "b")}
    model = keras.Model(inputs, dense()(First()(inputs["a"], inputs["b"])))
    model.compile("sgd", "mse")
    assert place_on(model, {"a": ONES, "b": NAN}) is None


class Idle(layers.Layer):
    """Owns a weight that nothing depends on."""

    def build(self, shape):
        self.idle = self.add_weight(shape=(2,), initializer="zeros", trainable=False, name="idle")

    def call(self, inputs):
        return inputs


def idle_report():
    model = chain(Idle(name="owner"), dense())
    model.get_layer("owner").idle.assign([np.nan, 0])
    return report_on(model)


def test_a_nan_in_a_weight_that_reaches_nothing_is_no_origin():
    assert idle_report().origin is None


def test_a_nan_in_a_weight_that_reaches_nothing_is_noted():
    assert idle_report().notes == ("NaN or Inf is in 1 variables: 'owner/idle'.",)


def test_a_nan_in_a_metric_is_said_to_leave_the_training_alone():
    def root(y, p):
        return tf.sqrt(tf.reduce_mean(y) * 0 - 1)

    report = report_on(chain(dense(), metrics=[root]))
    assert report.origin.path == "@metrics"
    assert report.notes == ("Only a metric is affected: the training itself is not.",)


def test_integer_data_hold_no_nan():
    model = chain(layers.Embedding(4, 4), layers.Flatten(), dense(), shape=(2,))
    assert place_on(model, np.ones((4, 2), "int32")) is None
