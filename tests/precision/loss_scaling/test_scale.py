"""How the scale moves and what is counted, worked out by hand."""

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
    bits,
    constant,
    feed,
    in_each_mode,
    in_mode,
    scaled,
    variable,
)

# A few hundred steps: one by one they would take long.
compiled = pytest.mark.parametrize("mode", ["graph", "jit"])

RAISE_AND_FALL = {"growth_interval": 1, "growth_factor": 1.5, "backoff_factor": 0.25}


def scales(pattern: str, **settings: Any) -> list[float]:
    """The scale after each step: `.` is applied, `x` is skipped."""
    optimizer, weight = scaled(keras.optimizers.SGD(0.0), **settings), variable(1.0)
    seen = []
    for step in pattern:
        feed(optimizer, weight, INF if step == "x" else 1.0)
        seen.append(optimizer.loss_scale_state().scale)
    return seen


@pytest.mark.parametrize(
    ("pattern", "expected", "settings"),
    [
        ("xx.x", [4, 2, 2, 1], {}),
        ("......", [8, 8, 16, 16, 16, 32], {"growth_interval": 3}),
        ("..x...", [8, 8, 4, 4, 4, 8], {"growth_interval": 3}),
        ("...", [16, 32, 64], {"growth_interval": 1}),
        ("x.xx.xxxx.x", [8, 8, 8, 4, 4, 4, 2, 1, 1, 1, 1], {"hysteresis": 2}),
        ("xxx.xx", [8, 8, 4, 4, 4, 4], {"hysteresis": 3}),
        ("..x..x...", [8, 8, 8, 8, 8, 8, 8, 8, 16], {"growth_interval": 3, "hysteresis": 2}),
        ("xxxx", [4, 3, 3, 3], {"min_scale": 3}),
        ("....", [16, 20, 20, 20], {"growth_interval": 1, "max_scale": 20}),
        (".x.x", [12, 3, 4.5, 1.125], RAISE_AND_FALL),
        ("..xx..", [8] * 6, {"scaling": "static", "growth_interval": 1}),
    ],
)
def test_the_scale_after_each_step_is(
    pattern: str, expected: list[float], settings: dict[str, Any]
) -> None:
    assert scales(pattern, initial_scale=8, **settings) == expected


def test_growth_starts_over_after_a_skip_that_did_not_lower_the_scale() -> None:
    settings = {"initial_scale": 8, "hysteresis": 5, "growth_interval": 2}
    assert scales(".x.x..", **settings) == [8, 8, 8, 8, 8, 16]


def test_every_step_is_counted() -> None:
    optimizer, weight = scaled(initial_scale=8, growth_interval=2), variable(1.0)
    feed(optimizer, weight, 1, INF, 1, 1, NAN, -INF)
    assert optimizer.loss_scale_state() == amp.LossScaleState(
        scale=2.0,  # 8, 4, raised to 8, 4, 2
        applied_steps=3,
        skipped_steps=3,
        consecutive_skips=2,
        last_skipped_step=6,
        growths=1,
    )


def test_only_actual_raises_are_counted_as_growths() -> None:
    optimizer, weight = scaled(initial_scale=8, growth_interval=1, max_scale=20), variable(1.0)
    feed(optimizer, weight, 1, 1, 1, 1)
    state = optimizer.loss_scale_state()
    assert (state.scale, state.growths) == (20.0, 2)  # 16, 20, 20, 20


def test_the_first_and_the_last_skipped_step_are_numbered_from_1() -> None:
    optimizer, weight = scaled(), variable(1.0)
    assert optimizer.loss_scale_state().last_skipped_step is None
    feed(optimizer, weight, INF)
    assert optimizer.loss_scale_state().last_skipped_step == 1
    feed(optimizer, weight, 1, 1, INF, 1)
    assert optimizer.loss_scale_state().last_skipped_step == 4


def test_the_state_prints_itself_with_its_rate() -> None:
    optimizer, weight = scaled(), variable(1.0)
    feed(optimizer, weight, 1, 1, INF, 1)
    assert str(optimizer.loss_scale_state()) == (
        "loss scale 16384, 3 steps applied, 1 skipped (25.0 %), the last one at step 3"
    )
    assert optimizer.loss_scale_state().skip_rate == 0.25


def test_a_step_divides_by_the_scale_from_before_it() -> None:
    optimizer, weight = scaled(initial_scale=8, growth_interval=1), variable(0.0)
    feed(optimizer, weight, 8)
    assert weight.numpy() == [-1.0]
    feed(optimizer, weight, 16)
    assert weight.numpy() == [-2.0]


@compiled
def test_165_bad_steps_leave_a_scale_that_still_trains(mode: str) -> None:  # L5
    optimizer, weight = scaled(max_consecutive_skips=None), variable(1.0)
    optimizer.build([weight])
    step = in_mode(lambda grad: optimizer.apply([grad], [weight]), mode)
    for _ in range(165):
        step(constant(INF))
    assert optimizer.loss_scale_state().scale == 1.0
    step(optimizer.scale_loss(constant(0.5)))
    assert weight.numpy() == [0.5]


def test_one_bad_batch_in_50_does_not_drive_the_scale_down_without_end() -> None:  # L6
    optimizer, weight = scaled(keras.optimizers.SGD(0.0), min_scale=256), variable(1.0)
    optimizer.build([weight])

    @tf.function
    def train() -> None:
        for number in tf.range(2500):
            grad = tf.where(number % 50 == 49, constant(INF), constant(1.0))
            optimizer.apply([grad], [weight])

    train()
    state = optimizer.loss_scale_state()
    assert (state.scale, state.skip_rate, state.last_skipped_step) == (256.0, 0.02, 2500)


@compiled
def test_300_growths_leave_a_scale_that_still_trains(mode: str) -> None:  # L7
    optimizer, weight = scaled(growth_interval=1), variable(1.0)
    optimizer.build([weight])
    step = in_mode(lambda grad: optimizer.apply([grad], [weight]), mode)
    for _ in range(300):
        step(constant(0.0))
    assert optimizer.loss_scale_state() == amp.LossScaleState(2.0**24, 300, growths=9)
    step(optimizer.scale_loss(constant(0.5)))
    assert weight.numpy() == [0.5]


def test_a_scale_that_grows_past_float32_stops_at_its_bound() -> None:
    settings = {"growth_interval": 1, "growth_factor": 3e38, "max_scale": 3e38}
    assert scales("..x", initial_scale=2, **settings) == [
        float(np.float32(3e38)),
        float(np.float32(3e38)),
        float(np.float32(3e38) / 2),
    ]


def test_a_scale_that_falls_below_float32_stops_at_its_bound() -> None:
    tiny = {"backoff_factor": 2.0**-120, "min_scale": 2.0**-126}
    assert scales("xx", initial_scale=1, **tiny) == [2.0**-120, 2.0**-126]


@in_each_mode
def test_a_scale_that_something_else_wrote_is_brought_into_bounds(mode: str) -> None:
    optimizer, weight = scaled(max_scale=2.0**20), variable(1.0)
    optimizer.build([weight])
    step = in_mode(lambda: optimizer.apply([optimizer.scale_loss(constant(0.5))], [weight]), mode)
    seen = []
    for scale in (0.0, -INF, NAN, -8.0, 1e-30, INF, 1e30):
        weight.assign([1.0])
        optimizer.dynamic_scale.assign(scale)
        step()
        seen.append((weight.numpy().tolist(), optimizer.loss_scale_state().scale))
    assert seen == [([0.5], 1.0)] * 5 + [([0.5], 2.0**20)] * 2


def test_a_finite_gradient_that_a_small_scale_makes_infinite_is_skipped() -> None:
    optimizer = scaled(scaling="static", initial_scale=0.5)
    weight = variable(1.0)
    before = bits(weight, optimizer)
    feed(optimizer, weight, HUGE)
    assert bits(weight, optimizer) == before
    assert optimizer.loss_scale_state().skipped_steps == 1


@in_each_mode
def test_large_finite_gradients_are_applied(mode: str) -> None:
    optimizer = scaled(keras.optimizers.SGD(1.0), initial_scale=2.0**15)
    weights = [variable(0.0, 0.0), variable(0.0, 0.0)]
    optimizer.build(weights)
    step = in_mode(lambda *grads: optimizer.apply(grads, weights), mode)
    step(constant(HUGE, HUGE), constant(HUGE, -HUGE))
    expected = np.float32(HUGE) / np.float32(2**15)
    assert [w.numpy().tolist() for w in weights] == [[-expected, -expected], [-expected, expected]]
