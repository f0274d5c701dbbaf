"""Problems that people have with half precision, small enough to be read: each is named."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import ONES, Apply, chain, dense, fault, location, marked, place, place_on, report_on

pytestmark = [
    pytest.mark.usefixtures("float16"),
    # What NumPy says of -1e9 in float16 is the fault.
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
]


def incomes():
    values = np.linspace(20_000, 200_000, 64, dtype="float32")
    norm = layers.Normalization(mean=values.mean(), variance=values.var(), name="norm")
    return chain(norm, dense(1), shape=(1,)), values[:, None], np.zeros((64, 1), "float32")


def test_incomes_become_infinite_where_they_are_cast_for_the_normalization():
    assert place_on(*incomes()) == ("norm", "Cast", "forward")


def test_incomes_are_said_to_be_beyond_the_format():
    reason = report_on(*incomes(), batch_size=None).origin.reason
    assert reason == "Cast of 200000 overflows float16 from 65520 on."


def test_incomes_are_finite_in_float32():
    assert report_on(*incomes()).in_float32 is False


class Masked(layers.Layer):
    def call(self, inputs):
        kept = ops.cast(inputs > 0, inputs.dtype)
        return ops.softmax(inputs + (1 - kept) * -1e9)  # origin


def test_a_mask_of_a_billion_is_named_with_its_line():
    report = report_on(chain(Masked(name="masked"), dense()))
    assert (*place(report), location(report)) == ("masked", "Const", "forward", marked(Masked))


def test_a_mask_of_a_billion_is_called_what_the_code_says():
    assert "-1e+09" in report_on(chain(Masked(name="masked"), dense())).origin.reason


class UnitLength(layers.Layer):
    def call(self, inputs):
        norm = ops.sum(ops.abs(inputs), axis=-1, keepdims=True)
        return inputs / (norm + 1e-8)  # origin


def test_a_guard_that_vanished_is_named_where_it_no_longer_guards():
    report = report_on(chain(UnitLength(name="unit"), dense()), ONES * 0)
    assert (*place(report), location(report)) == ("unit", "RealDiv", "forward", marked(UnitLength))


def test_a_guard_that_vanished_is_given_as_the_code_says_it():
    assert "1e-08" in report_on(chain(UnitLength(name="unit"), dense()), ONES * 0).origin.reason


class Likelihood(layers.Layer):
    def call(self, inputs):
        share = ops.clip(inputs, 1e-8, 1 - 1e-8)
        return ops.log(share)  # origin


def test_a_clip_that_vanished_is_named_at_the_logarithm():
    report = report_on(chain(Likelihood(name="log"), dense()), ONES * 0)
    assert (*place(report), location(report)) == ("log", "Log", "forward", marked(Likelihood))


def test_a_clip_that_vanished_is_given_as_the_code_says_it():
    assert "1e-08" in report_on(chain(Likelihood(name="log"), dense()), ONES * 0).origin.reason


def dice(y, p):
    y = tf.cast(y, p.dtype)
    overlap = tf.reduce_sum(y * p)  # origin
    return 1 - 2 * overlap / (tf.reduce_sum(y) + tf.reduce_sum(p))


def dice_report():
    inputs = keras.Input((300, 300, 1))
    ones = keras.initializers.Ones()
    model = keras.Model(inputs, layers.Conv2D(1, 1, kernel_initializer=ones)(inputs))
    picture = np.ones((1, 300, 300, 1), "float32")
    return report_on(model, picture, picture, loss=dice)


def test_a_dice_loss_over_a_picture_overflows_in_its_first_sum():
    report = dice_report()
    assert (*place(report), location(report)) == ("@loss", "Sum", "forward", marked(dice))


def test_the_sum_of_a_dice_loss_is_told_with_what_it_adds_up():
    # 300 times 300 ones.
    (operand, *_) = dice_report().origin.operands
    assert (operand.shape, operand.maximum) == ((1, 300, 300, 1), 1.0)


class Peaks(layers.Layer):
    def call(self, inputs):
        return inputs * 700  # origin


def sporadic_report():
    x = np.ones((20, 4), "float32")
    x[13, 2] = 100  # 7e4, in the fourth batch of four
    small = Apply(lambda x: x * 1e-3, name="small")
    return report_on(chain(Peaks(name="peaks"), small, dense()), x, x, batch_size=4)


def test_activations_that_are_too_large_in_one_batch_are_named():
    report = sporadic_report()
    assert (*place(report), location(report)) == ("peaks", "Mul", "forward", marked(Peaks))


def test_the_batch_of_too_large_activations_is_named():
    assert sporadic_report().num_batches == 4


def test_what_softmax_masks_is_clean():
    scores, mask = keras.Input((4,)), keras.Input((4,), dtype="bool")
    model = keras.Model([scores, mask], dense()(layers.Softmax()(scores, mask=mask)))
    model.compile("sgd", "mse")
    assert place_on(model, [ONES, np.eye(4, dtype=bool)]) is None


def test_rows_of_attention_that_are_masked_wholly_are_clean():
    words, mask = keras.Input((3, 4)), keras.Input((3, 3), dtype="bool")
    attention = layers.MultiHeadAttention(1, 4)
    model = keras.Model([words, mask], attention(words, words, attention_mask=mask))
    model.compile("sgd", "mse")
    x = np.ones((2, 3, 4), "float32")
    assert place_on(model, [x, np.zeros((2, 3, 3), bool)], x) is None


def normalized():
    model = chain(fault(lambda x: x * 1), layers.BatchNormalization(name="bn"), dense())
    return model, ONES * 7e4


def test_a_batch_that_overflows_is_told_to_reach_the_moving_statistics():
    reached = report_on(*normalized()).reached
    assert {"bn/moving_mean", "bn/moving_variance"} <= set(reached)


def test_a_batch_that_overflows_is_named_at_its_cast():
    report = report_on(*normalized())
    assert (report.origin.operation, report.origin.direction) == ("Cast", "forward")


def test_moving_statistics_never_see_the_batch_that_overflows():
    model, x = normalized()
    report_on(model, x)
    statistics = [np.array(one) for one in model.get_layer("bn").non_trainable_variables]
    np.testing.assert_array_equal(statistics, [np.zeros(4), np.ones(4)])
