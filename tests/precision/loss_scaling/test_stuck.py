"""A run that only skips is stopped, with a message that says what to do."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import (
    BAD,
    GOOD,
    INF,
    bits,
    constant,
    feed,
    fit,
    scaled,
    variable,
)

MESSAGE = (
    "3 steps in a row were skipped: in each of them a gradient was not finite. The loss scale is "
    "4096. If that is its minimum, scaling is not the cause: look for NaN in the data, too high a "
    "learning rate, or a layer that overflows. Otherwise raise max_consecutive_skips."
)


def small_model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def test_the_step_that_reaches_the_limit_raises() -> None:
    optimizer, weight = scaled(max_consecutive_skips=3), variable(1.0)
    feed(optimizer, weight, INF, INF)
    with pytest.raises(amp.errors.TrainingStuckError, match=re.escape(MESSAGE)):
        feed(optimizer, weight, INF)


def test_the_first_skipped_step_raises_if_one_is_too_many() -> None:
    optimizer, weight = scaled(max_consecutive_skips=1), variable(1.0)
    with pytest.raises(amp.errors.TrainingStuckError, match=r"^1 steps in a row"):
        feed(optimizer, weight, INF)


def test_an_applied_step_in_between_starts_the_count_over() -> None:
    optimizer, weight = scaled(max_consecutive_skips=3), variable(1.0)
    feed(optimizer, weight, INF, INF, 1, INF, INF, 1, INF, INF)
    assert optimizer.loss_scale_state().consecutive_skips == 2


def test_a_static_scale_gets_stuck_as_well() -> None:
    optimizer = scaled(scaling="static", initial_scale=4096, max_consecutive_skips=3)
    with pytest.raises(amp.errors.TrainingStuckError, match=re.escape(MESSAGE)):
        feed(optimizer, variable(1.0), INF, INF, INF)


def test_none_means_that_it_never_raises() -> None:
    optimizer, weight = scaled(max_consecutive_skips=None), variable(1.0)
    feed(optimizer, weight, *[INF] * 60)
    assert optimizer.loss_scale_state().consecutive_skips == 60


def test_it_raises_at_the_fiftieth_skipped_step_unless_told_otherwise() -> None:
    optimizer, weight = scaled(), variable(1.0)
    feed(optimizer, weight, *[INF] * 49)
    with pytest.raises(amp.errors.TrainingStuckError, match=r"^50 steps .* scale is 1\. If"):
        feed(optimizer, weight, INF)


def test_the_step_that_raises_has_been_counted_and_changed_nothing_else() -> None:
    optimizer, weight = scaled(keras.optimizers.Adam(), max_consecutive_skips=2), variable(1.0)
    feed(optimizer, weight, 1)
    before = bits(weight, optimizer)
    with pytest.raises(amp.errors.TrainingStuckError):
        feed(optimizer, weight, INF, INF)
    assert bits(weight, optimizer) == before
    assert optimizer.loss_scale_state() == amp.LossScaleState(2.0**13, 1, 2, 2, 3)


def test_training_can_go_on_after_the_error_was_caught() -> None:
    optimizer, weight = scaled(max_consecutive_skips=1), variable(1.0)
    with pytest.raises(amp.errors.TrainingStuckError):
        feed(optimizer, weight, INF)
    feed(optimizer, weight, 2.0**14 / 2)
    assert weight.numpy() == [0.5]
    assert optimizer.loss_scale_state().consecutive_skips == 0


def test_a_traced_step_raises_with_the_same_text_and_keeps_its_state() -> None:
    optimizer, weight = scaled(keras.optimizers.Adam(), max_consecutive_skips=3), variable(1.0)
    optimizer.build([weight])
    step = tf.function(lambda grad: optimizer.apply([grad], [weight]))
    before = bits(weight, optimizer)
    step(constant(INF))
    step(constant(INF))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        step(constant(INF))
    # TensorFlow prints each part of the message in quotes or brackets of its own.
    said = " ".join(re.sub(r"[\[\]]", "", str(caught.value)).split())
    assert all(part in said for part in re.split(r"(?<=is) 4096(?=\.)", MESSAGE.split(" ", 1)[1]))
    assert "3" in said and "4096" in said
    assert bits(weight, optimizer) == before
    assert optimizer.loss_scale_state() == amp.LossScaleState(2.0**12, 0, 3, 3, 3)


def test_a_traced_step_restores_protected_state_before_it_raises() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.BatchNormalization()])
    optimizer = scaled(max_consecutive_skips=1)
    model.compile(optimizer, "mse")
    optimizer.protect(model)
    before = bits(model)
    with pytest.raises(tf.errors.InvalidArgumentError):
        model.train_on_batch(BAD, GOOD)
    assert bits(model) == before


@pytest.mark.parametrize(
    ("run_eagerly", "error"),
    [(True, amp.errors.TrainingStuckError), (False, tf.errors.InvalidArgumentError)],
)
def test_fit_is_stopped(run_eagerly: bool, error: type[Exception]) -> None:
    model, optimizer = small_model(), scaled(max_consecutive_skips=3)
    model.compile(optimizer, "mse", run_eagerly=run_eagerly)
    with pytest.raises(error):
        fit(model, GOOD, BAD, BAD, BAD, GOOD)
    state = optimizer.loss_scale_state()
    assert (state.applied_steps, state.skipped_steps) == (1, 3)


def test_fit_is_not_stopped_by_as_many_skips_that_are_not_in_a_row() -> None:
    model, optimizer = small_model(), scaled(max_consecutive_skips=2)
    model.compile(optimizer, "mse")
    fit(model, BAD, GOOD, BAD, GOOD, BAD)
    assert np.isfinite(model.get_weights()[0]).all()


def test_a_compiled_step_counts_on_and_says_so_when_asked() -> None:
    optimizer, weight = scaled(max_consecutive_skips=3), variable(1.0)
    optimizer.build([weight])
    step: Any = tf.function(lambda grad: optimizer.apply([grad], [weight]), jit_compile=True)
    for _ in range(3):
        optimizer.check_that_it_trains()
        step(constant(INF))
    with pytest.raises(amp.errors.TrainingStuckError, match=re.escape(MESSAGE)):
        optimizer.check_that_it_trains()


def test_the_check_keeps_nothing_alive_that_nobody_asked_for() -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.build([weight])

    @tf.function
    def step(grad: Any) -> None:
        tf.exp(grad)  # as the gradient of a first layer's inputs is, which nobody needs
        optimizer.apply([grad], [weight])

    operations = step.get_concrete_function(tf.TensorSpec((1,))).graph.get_operations()
    check = next(one for one in operations if one.type == "Assert")
    assert not {one.type for one in check.control_inputs} & {"Exp", "Cast", "Mul"}
