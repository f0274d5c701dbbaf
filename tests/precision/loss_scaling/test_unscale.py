"""True gradients, to look at or to clip: what `unscale` saw must not be lost."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import (
    HAS_OLD_XLA,
    INF,
    NAN,
    bits,
    constant,
    in_each_mode,
    in_mode,
    scaled,
    variable,
)


@in_each_mode
def test_gradients_can_be_clipped_to_a_norm(mode: str) -> None:  # L12
    optimizer, weight = scaled(initial_scale=2.0**15), variable(0.0, 0.0)
    optimizer.build([weight])

    def step() -> None:
        with tf.GradientTape() as tape:
            # Its true gradient is (30, 40), of norm 50.
            loss = optimizer.scale_loss(tf.reduce_sum(weight.value * constant(30.0, 40.0)))
        grads = optimizer.unscale(tape.gradient(loss, [weight.value]))
        clipped, _ = tf.clip_by_global_norm(grads, 1.0)
        optimizer.apply_unscaled(clipped, [weight])

    in_mode(step, mode)()
    assert np.linalg.norm(weight.numpy()) == pytest.approx(1.0, rel=1e-6)
    assert optimizer.loss_scale_state() == amp.LossScaleState(2.0**15, applied_steps=1)


@in_each_mode
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_clipping_by_value_hides_no_bad_gradient(mode: str, bad: float) -> None:  # L12
    if HAS_OLD_XLA and mode == "jit":
        pytest.skip("clipping by value loses NaN there, as the documentation says")
    optimizer, weight = scaled(keras.optimizers.Adam(), initial_scale=8), variable(1.0, 1.0)
    optimizer.build([weight])

    def step(grad: Any) -> None:
        grads = optimizer.unscale([grad])
        grads = [tf.clip_by_value(grad, -1.0, 1.0) for grad in grads]
        optimizer.apply_unscaled(grads, [weight])

    step = in_mode(step, mode)
    before = bits(weight, optimizer)
    step(constant(bad, 1.0))
    assert bits(weight, optimizer) == before
    step(constant(1.0, 1.0))
    assert optimizer.loss_scale_state() == amp.LossScaleState(4.0, 1, 1, 0, 1)


def test_looking_at_bad_gradients_does_not_spoil_a_good_step() -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.unscale([constant(INF)])
    optimizer.apply([constant(1.0)], [weight])
    optimizer.apply_unscaled([constant(1.0)], [weight])
    assert optimizer.loss_scale_state().skipped_steps == 0


@in_each_mode
@pytest.mark.parametrize("which", [0, 1])
def test_no_infinity_is_hidden_between_two_losses(mode: str, which: int) -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.build([weight])

    def step(first: Any, second: Any) -> None:
        pair = [optimizer.unscale([grad])[0] for grad in (first, second)]
        total = tf.add_n([tf.clip_by_value(grad, -1.0, 1.0) for grad in pair])
        optimizer.apply_unscaled([total], [weight])

    grads = [constant(1.0), constant(1.0)]
    grads[which] = constant(INF)
    in_mode(step, mode)(*grads)
    assert weight.numpy() == [1.0]
    assert optimizer.loss_scale_state().skipped_steps == 1


def test_no_infinity_is_hidden_between_microbatches_of_one_traced_loop() -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.build([weight])

    @tf.function
    def step(microbatches: Any) -> None:
        total = tf.zeros(1)
        for grad in microbatches:
            total += tf.clip_by_value(optimizer.unscale([grad])[0], -1.0, 1.0)
        optimizer.apply_unscaled([total], [weight])

    step(tf.constant([[INF], [1.0]]))
    assert (weight.numpy(), optimizer.loss_scale_state().skipped_steps) == ([1.0], 1)


def test_no_infinity_is_hidden_between_a_traced_function_and_an_eager_step() -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.build([weight])

    @tf.function
    def clipped(grad: Any) -> Any:
        return tf.clip_by_value(optimizer.unscale([grad])[0], -1.0, 1.0)

    def step() -> None:
        optimizer.apply_unscaled([clipped(constant(INF))], [weight])

    step()
    assert (weight.numpy(), optimizer.loss_scale_state().skipped_steps) == ([1.0], 1)


@pytest.mark.parametrize("bad", [INF, NAN])
def test_true_gradients_that_are_not_finite_are_skipped(bad: float) -> None:
    optimizer, weight = scaled(initial_scale=8), variable(1.0)
    optimizer.apply_unscaled([constant(bad)], [weight])
    assert (weight.numpy(), optimizer.loss_scale_state().scale) == ([1.0], 4.0)


@pytest.mark.parametrize("inner", [{"global_clipnorm": 1.0}, {}], ids=["clipping", "plain"])
def test_large_true_gradients_are_not_taken_for_scaled_ones(inner: dict[str, float]) -> None:
    optimizer, weight = scaled(keras.optimizers.SGD(1e-30, **inner)), variable(1.0, 1.0)
    optimizer.apply_unscaled([constant(1e20, 1.0)], [weight])
    # The square of 1e20 is no float32: only the norm is infinite.
    assert optimizer.loss_scale_state().skipped_steps == bool(inner)
    assert np.isfinite(weight.numpy()).all()


def test_true_gradients_too_large_for_a_half_variable_are_skipped() -> None:
    optimizer, weight = scaled(keras.optimizers.SGD(1e-3)), variable(1.0, dtype="float16")
    optimizer.apply_unscaled([constant(1e5)], [weight])
    assert weight.numpy() == [1.0]


def test_unscale_keeps_what_half_precision_would_lose() -> None:
    grads = scaled(initial_scale=2.0**15).unscale([constant(2.0**-14, dtype="float16"), None])
    assert (grads[0].dtype, float(grads[0][0]), grads[1]) == (tf.float32, 2.0**-29, None)


def test_unscale_leaves_slices_sparse() -> None:
    grad = tf.IndexedSlices(constant(8.0), tf.constant([2]), tf.constant([5]))
    sparse = scaled(initial_scale=8).unscale([grad])[0]
    assert isinstance(sparse, tf.IndexedSlices)
    assert (sparse.values.numpy(), sparse.indices.numpy()) == ([1.0], [2])
