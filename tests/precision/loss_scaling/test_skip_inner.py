"""A skipped step leaves whatever the inner optimizer keeps as it was, bit by bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.precision.loss_scaling.helpers import (
    INF,
    NAN,
    bits,
    constant,
    in_each_mode,
    in_mode,
    is_usable,
    scaled,
    variable,
)

opt = keras.optimizers

INNER: dict[str, Callable[[], Any]] = {
    "momentum": lambda: opt.SGD(0.1, momentum=0.9, nesterov=True),
    "weight decay": lambda: opt.AdamW(0.1, weight_decay=0.1),
    "global_clipnorm": lambda: opt.Adam(0.1, global_clipnorm=0.1),
    "clipnorm": lambda: opt.Adam(0.1, clipnorm=0.1),
    "clipvalue": lambda: opt.Adam(0.1, clipvalue=0.1),
    "amsgrad": lambda: opt.Adam(0.1, amsgrad=True),
    "average": lambda: opt.SGD(0.1, use_ema=True, ema_momentum=0.5),
    "average that overwrites": lambda: opt.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
    "accumulation": lambda: opt.Adam(0.1, gradient_accumulation_steps=3),
    "accumulation, clipped, averaged": lambda: opt.AdamW(
        0.1, gradient_accumulation_steps=2, global_clipnorm=0.1, use_ema=True
    ),
    "schedule": lambda: opt.SGD(opt.schedules.ExponentialDecay(0.1, 1, 0.5)),
}
NAMES = ("Adadelta", "Adafactor", "Adagrad", "Adamax", "Ftrl", "Lamb", "Lion", "Muon", "Nadam")
for name in (*NAMES, "RMSprop", "ScheduleFreeAdamW"):
    if is_usable(name):
        INNER[name] = functools.partial(getattr(opt, name), 0.1)

NUM_ROUNDS = 3


def gradients(number: int) -> list[Any]:
    matrix = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3) * (number + 1)
    return [tf.constant(matrix), constant(0.5, -0.25, number)]


def check_leaves_no_trace(inner: Any, mode: str) -> None:
    """Bad steps between good ones, of which each moves something."""
    optimizer = scaled(inner)
    weights = [keras.Variable(np.full((4, 3), 0.5, np.float32)), variable(1.0, -1.0, 2.0)]
    optimizer.build(weights)
    step = in_mode(lambda grads: optimizer.apply(grads, weights), mode)
    for number in range(NUM_ROUNDS):
        matrix, vector = gradients(number)
        before = bits(optimizer, *weights)
        step([matrix, constant(1.0, INF, NAN)])
        step([tf.fill((4, 3), -INF), vector])
        assert bits(optimizer, *weights) == before
        step([grad * optimizer.dynamic_scale for grad in (matrix, vector)])
        assert bits(optimizer, *weights) != before
    assert optimizer.loss_scale_state().skipped_steps == 2 * NUM_ROUNDS


@pytest.mark.parametrize("inner", INNER)
def test_bad_steps_in_between_leave_no_trace(inner: str) -> None:
    check_leaves_no_trace(INNER[inner](), "graph")


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("inner", ["weight decay", "accumulation, clipped, averaged"])
def test_bad_steps_leave_no_trace_in_other_modes(inner: str, mode: str) -> None:
    check_leaves_no_trace(INNER[inner](), mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("inner", INNER)
def test_bad_steps_leave_no_trace_in_any_mode(inner: str, mode: str) -> None:
    check_leaves_no_trace(INNER[inner](), mode)


def test_an_accumulation_in_progress_goes_on_after_a_skip() -> None:
    optimizer = scaled(opt.SGD(1.0, gradient_accumulation_steps=3), hysteresis=9)
    weight = variable(0.0)
    for grad in (3.0, INF, 6.0, NAN, 9.0):
        optimizer.apply([optimizer.scale_loss(constant(grad))], [weight])
    assert weight.numpy() == [-6.0]
    assert int(optimizer.iterations.numpy()) == 1


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables:UserWarning")
def test_variables_without_a_gradient_change_nothing_about_a_skip() -> None:
    optimizer, weights = scaled(opt.Adam(0.1)), [variable(1.0), variable(2.0), variable(3.0)]
    optimizer.build(weights)
    before = bits(optimizer, *weights)
    optimizer.apply([None, constant(INF), None], weights)
    assert bits(optimizer, *weights) == before
    optimizer.apply([None, constant(1.0), None], weights)
    assert [weights[0].numpy(), weights[2].numpy()] == [[1.0], [3.0]]
    assert weights[1].numpy() != [2.0]


def test_no_gradient_for_any_variable_is_an_error_not_a_step() -> None:
    optimizer, weight = scaled(), variable(1.0)
    with pytest.raises(ValueError, match=r"^No gradients provided for any variable\."):
        optimizer.apply([None], [weight])
    assert optimizer.loss_scale_state().applied_steps == 0


def embedding(sparse_dtype: str) -> keras.Model:
    table = keras.layers.Embedding(8, 2, dtype=sparse_dtype)
    return keras.Sequential([keras.Input((2,), dtype="int32"), table, keras.layers.Flatten()])


@in_each_mode
@pytest.mark.parametrize("bad", [INF, NAN])
def test_sparse_gradients_of_an_embedding_are_skipped(mode: str, bad: float) -> None:
    model, optimizer = embedding("float32"), scaled(opt.Adam(0.1), hysteresis=9)
    optimizer.build(model.trainable_variables)
    seen = []

    def step(rows: Any, factor: Any) -> None:
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_sum(model(rows, training=True)) * factor)
        grads = tape.gradient(loss, model.trainable_variables)
        seen.append(type(grads[0]))
        optimizer.apply(grads, model.trainable_variables)

    run_step, rows = in_mode(step, mode), tf.constant([[1, 1], [5, 1]])
    run_step(rows, tf.constant(1.0))
    before = bits(model, optimizer)
    run_step(rows, tf.constant(bad))
    assert bits(model, optimizer) == before
    assert seen[0] is tf.IndexedSlices


@pytest.mark.parametrize("policy", ["mixed_float16", "float16"])
def test_gradients_of_an_embedding_in_half_precision_are_skipped(policy: str) -> None:
    model, optimizer = embedding(policy), scaled(opt.SGD(0.1), growth_interval=1)
    model.compile(optimizer, "mse")
    rows = np.array([[1, 1], [5, 1]])
    model.train_on_batch(rows, np.zeros((2, 4), np.float32))
    before = bits(model, optimizer)
    model.train_on_batch(rows, np.full((2, 4), 1e9, np.float32))
    assert optimizer.loss_scale_state().skipped_steps == 1
    assert bits(model, optimizer) == before
    assert np.isfinite(model.get_weights()[0].astype(np.float32)).all()


def test_constraints_are_not_applied_by_a_skip() -> None:
    weight = keras.Variable(np.array([3.0, 4.0], np.float32))
    weight.constraint = keras.constraints.MaxNorm(1.0, axis=0)
    optimizer = scaled()
    optimizer.apply([constant(INF, 0.0)], [weight])
    assert weight.numpy().tolist() == [3.0, 4.0]
    optimizer.apply([constant(0.0, 0.0)], [weight])
    assert np.linalg.norm(weight.numpy()) == pytest.approx(1.0, rel=1e-5)


def test_a_skip_divides_nothing_and_decays_nothing_whatever_the_learning_rate() -> None:
    optimizer, weight = scaled(opt.SGD(1e30, weight_decay=1e5)), variable(1.0)
    optimizer.apply([constant(NAN)], [weight])
    assert weight.numpy() == [1.0]
