"""What is bad is followed into loops, branches, functions and selections, and no further."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import ONES, Apply, chain, dense, fault, line_in, place, place_on, report_on

pytestmark = pytest.mark.usefixtures("float16")


def negative_inf_mask(x):
    return tf.where(tf.range(4) < 2, tf.constant(0.0, x.dtype), tf.constant(-np.inf, x.dtype))


def carried(x):
    """The state `a` is NaN after iteration 2, and finite again at the end."""

    def body(i, a, c):
        return i + 1, tf.where(tf.equal(i, 2), tf.sqrt(x * 0 - 1), x * 0), c * (a + 1)

    return tf.while_loop(lambda i, a, c: i < 6, body, (0, x * 0, x))[2]


def test_a_nan_that_a_loop_carries_on_begins_where_it_was_made():
    assert place_on(chain(fault(carried), dense())) == ("fault", "Sqrt", "forward")


def test_the_iteration_is_the_one_that_made_it():
    assert report_on(chain(fault(carried), dense())).origin.iterations == (2,)


class Late(layers.Layer):
    """Gives out the state before: what it makes of an input is seen a step later."""

    state_size = output_size = 4

    def call(self, inputs, states):
        return states[0], [ops.where(inputs < 0, ops.log(inputs), inputs * 0)]


def late_report():
    x = np.ones((2, 6, 4), "float32")
    x[:, 2] = -1
    rnn = layers.RNN(Late(), return_sequences=True, name="rnn")
    model = chain(rnn, layers.Flatten(), dense(), shape=(6, 4))
    return report_on(model, x, np.ones((2, 4)))


def test_a_nan_in_a_recurrent_state_is_found_in_the_cell():
    assert place(late_report()) == ("rnn/cell", "Log", "forward")


def test_a_nan_in_a_recurrent_state_is_found_at_its_time_step():
    assert late_report().origin.iterations == (2,)


def cond_of_mask(x):
    mask = negative_inf_mask(x)
    return tf.cond(tf.reduce_sum(x) > -1e9, lambda: x + mask, lambda: x)


def loop_of_mask(x):
    mask = negative_inf_mask(x)
    return tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a + mask), (0, x))[1]


def function_of_mask(x):
    mask = negative_inf_mask(x)
    add = tf.function(lambda a, b: a + b).get_concrete_function(
        tf.TensorSpec([None, 4], x.dtype), tf.TensorSpec([4], x.dtype)
    )
    return add(x, mask)


@pytest.mark.parametrize("around", [cond_of_mask, loop_of_mask, function_of_mask])
def test_a_mask_of_minus_infinity_stays_harmless_inside_of_bodies(around):
    def loss(y, p):
        return -tf.nn.log_softmax(p)[:, 0]

    model = chain(dense(), Apply(around, dtype="float32"))
    assert place_on(model, loss=loss) is None


def subtracted_in_the_second_turn(x):
    def body(i, a, mask):
        return i + 1, tf.where(tf.equal(i, 1), mask - mask, a), mask * 2

    return tf.while_loop(lambda i, *_: i < 3, body, (0, x, x + negative_inf_mask(x)))[1]


def test_a_nan_that_a_mask_makes_in_a_later_turn_is_found_there():
    report = report_on(chain(fault(subtracted_in_the_second_turn), dense()))
    assert (*place(report), report.origin.iterations) == ("fault", "Sub", "forward", (1,))


def test_what_overflows_in_a_branch_is_told_before_the_mask_that_comes_with_it():
    def mixed(x):
        mask = tf.math.log(tf.cast(tf.range(4) < 2, x.dtype))
        return tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.nn.softmax(x + mask) + tf.exp(x * 12),
            lambda: x + mask,
        )

    assert place_on(chain(fault(mixed), dense())) == ("fault", "Exp", "forward")


def test_a_function_that_two_layers_share_is_the_one_that_went_wrong():
    shared = tf.function(lambda x: tf.exp(x)).get_concrete_function(tf.TensorSpec([None, 4]))
    model = chain(
        Apply(lambda x: shared(x), name="first", dtype="float32"),
        Apply(lambda x: shared(x * 50.0), name="second", dtype="float32"),
        dense(),
    )
    assert place_on(model) == ("second", "Exp", "forward")


class Choose(layers.Layer):
    def call(self, first, second):
        return ops.where(ops.isfinite(first), first, second)


def test_the_branch_that_a_selection_leaves_is_not_the_origin():
    inputs = keras.Input((4,))
    left = Apply(lambda x: tf.math.log(-x), name="left")(inputs)
    taken = fault(lambda x: tf.exp(x * 12))(inputs)
    model = keras.Model(inputs, dense()(Choose()(left, taken)))
    model.compile("sgd", "mse")
    assert place_on(model) == ("fault", "Exp", "forward")


def old_select(condition, a, b):
    """The older operation, whose condition is one element per row."""
    return tf.raw_ops.Select(condition=condition[:, 0], x=a, y=b)


@pytest.mark.parametrize("select", [tf.where, old_select])
def test_inside_of_a_layer_the_branch_that_is_taken_is_the_origin(select):
    def chosen(x):
        return select(x > 0, tf.exp(x * 12), tf.math.log(-x))

    report = report_on(chain(fault(chosen), dense()))
    assert place(report) == ("fault", "Exp", "forward")


def test_new_infinities_beside_a_mask_are_an_overflow():
    def masked(x):
        scores = tf.where(tf.range(4) < 2, x * 0 + 300.0, tf.constant(-np.inf, x.dtype))
        return tf.nn.softmax(scores * 300.0)

    report = report_on(chain(fault(masked), dense()))
    assert place(report) == ("fault", "Mul", "forward")
    assert line_in(report) == "return tf.nn.softmax(scores * 300.0)"


def test_a_branch_number_that_there_is_not_runs_the_last_branch():
    def cases(x):
        branches = [lambda: x, lambda: x, lambda: tf.exp(x * 12)]
        number = tf.cast(tf.reduce_sum(x), tf.int32)  # 16
        return tf.switch_case(number, branches)

    assert place_on(chain(fault(cases), dense())) == ("fault", "Exp", "forward")


def test_a_loop_in_a_branch_in_a_loop_tells_both_iterations():
    def inner(x):
        # 60 to the power of 1, 2 and 3: the third is above 65520.
        return tf.while_loop(lambda j, b: j < 4, lambda j, b: (j + 1, b * 60), (0, x))[1]

    def outer(x):
        def body(i, a):
            return i + 1, tf.cond(tf.equal(i, 1), lambda: inner(a), lambda: a)

        return tf.while_loop(lambda i, a: i < 3, body, (0, x))[1]

    assert report_on(chain(fault(outer), dense())).origin.iterations == (1, 2)


def test_data_are_followed_into_a_loop():
    def doubled(x):
        return tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * x), (0, x))[1]

    assert place_on(chain(fault(doubled), dense()), ONES * np.nan) == ("@input/0", "", "forward")
