"""Loops of one's own: scale a loss, take its gradients, apply them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import (
    HUGE,
    INF,
    NAN,
    constant,
    in_each_mode,
    in_mode,
    scaled,
    told,
    variable,
)

UNSCALED_GRADIENTS = (
    "Gradients are about to be divided by the loss scale, but this optimizer never scaled a loss. "
    "Expected gradients of optimizer.scale_loss(loss). Take them of that, inside the GradientTape; "
    "for gradients that are not scaled, call apply_unscaled()."
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_half_loss_is_scaled_in_float32_before_the_optimizer_is_built(dtype: str) -> None:  # L11
    loss = amp.LossScaleOptimizer(keras.optimizers.SGD()).scale_loss(tf.constant(2.5, dtype))
    assert (loss.dtype, float(loss)) == (tf.float32, 81920.0)


@in_each_mode
def test_a_loss_scaled_before_the_build_follows_the_scale_later(mode: str) -> None:  # L11
    optimizer, weight = amp.LossScaleOptimizer(keras.optimizers.SGD()), variable(1.0)
    scale = in_mode(lambda loss: optimizer.scale_loss(loss), mode)
    loss = tf.constant(2.5, tf.float16)
    assert float(scale(loss)) == 2.5 * 2**15
    optimizer.apply([constant(INF)], [weight])
    assert float(scale(loss)) == 2.5 * 2**14


@pytest.mark.parametrize(
    ("loss", "dtype"),
    [(3, tf.float32), (3.0, tf.float32), (np.float32(3), tf.float32), (np.float64(3), tf.float64)],
)
def test_numbers_are_scaled_as_tensors_are(loss: Any, dtype: tf.DType) -> None:
    scaled_loss = scaled(initial_scale=8).scale_loss(loss)
    assert (scaled_loss.dtype, float(scaled_loss)) == (dtype, 24.0)


def test_losses_of_each_sample_are_scaled_one_by_one() -> None:
    losses = scaled(initial_scale=8).scale_loss(constant(1, 2, dtype="float16"))
    assert losses.numpy().tolist() == [8.0, 16.0]


def test_gradients_come_out_of_a_tape_scaled() -> None:
    optimizer, weight = scaled(initial_scale=8), variable(3.0)
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(weight.value**2)
    grads = tape.gradient(loss, [weight.value])
    assert grads[0].numpy() == [48.0]
    assert optimizer.unscale(grads)[0].numpy() == [6.0]
    optimizer.apply(grads, [weight])
    assert weight.numpy() == [-3.0]


def test_gradients_of_a_loss_that_nobody_scaled_are_told_of_once(caught: Any) -> None:  # L8
    optimizer, weight = amp.LossScaleOptimizer(keras.optimizers.SGD(1.0)), variable(1.0)
    for _ in range(3):
        optimizer.apply([constant(1.0)], [weight])
    assert told(caught) == [UNSCALED_GRADIENTS]
    assert caught[0].filename == __file__


def test_each_optimizer_tells_for_itself(caught: Any) -> None:  # L8
    for _ in range(2):
        amp.LossScaleOptimizer(keras.optimizers.SGD()).apply([constant(1.0)], [variable(1.0)])
    assert told(caught) == [UNSCALED_GRADIENTS] * 2


@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_it_is_told_while_the_step_is_traced(mode: str, caught: Any) -> None:  # L8
    optimizer, weight = amp.LossScaleOptimizer(keras.optimizers.SGD(1.0)), variable(1.0)
    optimizer.build([weight])
    step = in_mode(lambda grad: optimizer.apply([grad], [weight]), mode)
    step(constant(1.0)), step(constant(1.0))
    assert told(caught) == [UNSCALED_GRADIENTS]


@pytest.mark.parametrize("method", ["apply_gradients", "unscale"])
def test_other_ways_that_divide_tell_it_too(method: str, caught: Any) -> None:  # L8
    optimizer, weight = amp.LossScaleOptimizer(keras.optimizers.SGD(1.0)), variable(1.0)
    if method == "unscale":
        optimizer.unscale([constant(1.0)])
    else:
        optimizer.apply_gradients([(constant(1.0), weight)])
    assert told(caught) == [UNSCALED_GRADIENTS]
    assert caught[0].filename == __file__


def test_true_gradients_are_not_told_of(caught: Any) -> None:  # L8
    optimizer, weight = amp.LossScaleOptimizer(keras.optimizers.SGD(1.0)), variable(1.0)
    optimizer.apply_unscaled([constant(1.0)], [weight])
    assert (weight.numpy(), told(caught)) == ([0.0], [])


def test_float64_gradients_are_divided_in_float64() -> None:
    optimizer, weight = scaled(initial_scale=3.0), variable(0.0, dtype="float64")
    optimizer.apply([constant(1e300, dtype="float64")], [weight])
    assert weight.numpy() == [-1e300 / 3]


def test_apply_gradients_takes_pairs_and_gives_the_steps() -> None:
    optimizer, weight = scaled(initial_scale=8), variable(1.0)
    steps = [int(optimizer.apply_gradients([(constant(g), weight)])) for g in (8.0, INF, 8.0)]
    assert (steps, weight.numpy()) == ([1, 1, 2], [-2.0])  # 1 - 8/8 - 8/4


def test_variables_may_be_left_out_after_the_build() -> None:
    optimizer, weight = scaled(initial_scale=8), variable(1.0)
    optimizer.build([weight])
    optimizer.apply([constant(HUGE / HUGE * 8)])
    assert weight.numpy() == [0.0]


def test_gradients_without_variables_are_refused() -> None:
    with pytest.raises(amp.errors.OptimizerError, match=r"^The optimizer has no variables yet"):
        scaled().apply([constant(1.0)])


@pytest.mark.parametrize("method", ["apply", "apply_unscaled"])
def test_as_many_gradients_as_variables_are_expected(method: str) -> None:
    message = "^Expected one gradient for each variable. Received: 1 gradients for 2 variables.$"
    with pytest.raises(amp.errors.OptimizerError, match=message):
        getattr(scaled(), method)([constant(1.0)], [variable(1.0), variable(1.0)])


def test_no_gradients_at_all_are_no_step() -> None:
    optimizer = scaled()
    optimizer.apply([], [])
    assert optimizer.loss_scale_state() == amp.LossScaleState(2.0**15)


def test_native_variables_are_trained_as_well() -> None:
    optimizer, weight = scaled(initial_scale=8), tf.Variable([1.0])
    optimizer.apply([constant(8.0)], [weight])
    optimizer.apply([constant(NAN)], [weight])
    assert weight.numpy() == [0.0]


def test_a_step_that_was_traced_before_can_be_compiled_into_another_function() -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.build([weight])

    @tf.function
    def step(grad: Any) -> None:
        optimizer.apply([grad], [weight])

    step(constant(0.0))
    tf.function(step, jit_compile=True)(constant(2.0**15))
    assert weight.numpy() == [0.0]


def test_gradients_may_be_lists_and_arrays() -> None:
    optimizer, pair = scaled(initial_scale=2), (variable(1.0, 1.0), variable(1.0, 1.0))
    optimizer.apply([[2.0, 4.0], np.array([2.0, 4.0], np.float32)], pair)
    assert [one.numpy().tolist() for one in pair] == [[0.0, -1.0]] * 2
