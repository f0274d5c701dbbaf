"""Random draws: a batch keeps its own in every look at it, and no two batches share them."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import Apply, chain, dense, fault, place, report_on

pytestmark = pytest.mark.usefixtures("float16")

MANY = np.ones((400, 4), "float32")


def drawn_by_tensorflow():
    return tf.random.uniform((), dtype=tf.float32)


def drawn_by_keras():
    return keras.random.uniform((), dtype="float32")


def drawn_by_a_generator():
    return tf.random.get_global_generator().uniform(())


def drawn_by_numpy():
    draw = np.random.default_rng(5).random
    return tf.numpy_function(lambda: np.float32(draw()), [], tf.float32)


DRAWS = [drawn_by_tensorflow, drawn_by_keras, drawn_by_a_generator, drawn_by_numpy]


def rarely(draw):
    """Overflows in one batch of ten, on average: 60000 times 2."""

    def function(x):
        is_bad = tf.reshape(draw() > 0.9, ())
        return x * tf.where(is_bad, tf.constant(60000.0, x.dtype), tf.constant(1.0, x.dtype)) * 2.0

    return function


@pytest.mark.parametrize("draw", DRAWS)
def test_a_fault_that_a_rare_draw_makes_is_found_in_some_batch(draw):
    report = report_on(chain(fault(rarely(draw)), dense()), MANY, MANY, batch_size=4)
    # Of 100 batches without any bad one, the chance is 0.9 ** 100 = 3e-5.
    assert place(report) == ("fault", "Mul", "forward")


def test_a_mask_of_dropout_that_makes_a_layer_overflow_is_found():
    # Twice the four ones, if none is dropped: exp(11.2) is above 65520. With three it is 4447.
    def grow(x):
        return ops.exp(ops.sum(x, -1, keepdims=True) * 1.4) * ops.ones_like(x)

    # A gradient of nearly zero: nothing overflows on the way back.
    small = Apply(lambda x: x * 1e-4, name="small")
    model = chain(layers.Dropout(0.5), fault(grow), small, dense(kernel_initializer="zeros"))
    report = report_on(model, MANY, MANY * 0, batch_size=1)
    assert place(report) == ("fault", "Exp", "forward")


def test_what_is_bad_once_and_never_again_is_no_clean_run():
    calls = []

    def once():
        calls.append(0)
        return np.float32(np.nan if len(calls) == 1 else 1.0)

    def function(x):
        factor = tf.reshape(tf.numpy_function(once, [], tf.float32), ())
        return x * tf.cast(factor, x.dtype)

    report = report_on(chain(fault(function), dense()))
    assert report.notes == (
        "In 1 of the runs there was NaN or Inf that did not come again: an operation draws random "
        "numbers without a seed of Keras.",
    )


def state_of_keras():
    from keras.src.random.seed_generator import global_seed_generator

    return global_seed_generator().state


def state_of_tensorflow():
    return tf.random.get_global_generator().state


def draws_of_everything(x):
    total = drawn_by_tensorflow() + drawn_by_keras() + drawn_by_a_generator()
    return x + tf.cast(total, x.dtype)


@pytest.mark.parametrize("state", [state_of_keras, state_of_tensorflow])
def test_global_seeds_are_as_before(state):
    before = np.array(state())
    report_on(chain(fault(draws_of_everything), dense()), MANY, MANY, batch_size=100)
    np.testing.assert_array_equal(np.array(state()), before)


def test_the_next_eager_draw_is_the_same_as_without_looking():
    model = chain(fault(draws_of_everything), dense())
    tf.random.set_seed(7)
    expected = tf.random.uniform((3,)).numpy()
    tf.random.set_seed(7)
    report_on(model)
    np.testing.assert_array_equal(tf.random.uniform((3,)).numpy(), expected)


def test_the_seeds_of_a_layer_are_as_before():
    dropout = layers.Dropout(0.5)
    model = chain(dropout, dense())
    before = np.array(dropout.seed_generator.state)
    report_on(model, MANY, MANY, batch_size=100)
    np.testing.assert_array_equal(np.array(dropout.seed_generator.state), before)


def test_a_variable_that_no_layer_owns_is_as_before():
    count = tf.Variable(0.0)

    def counting(x):
        count.assign_add(1.0)
        return x

    report_on(chain(fault(counting), dense()), MANY, MANY, batch_size=100)
    assert count.numpy() == 0.0
