"""Whatever the gradients are, an optimizer does what ten lines of NumPy do."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import MODES, in_each_mode, in_mode, scaled
from tests.precision.loss_scaling.reference import LEARNING_RATE, Reference

START = np.array([1.0, -2.0, 0.5], np.float32)

# TensorFlow flushes float32's subnormals on a CPU, where NumPy keeps them.
ordinary = (
    st.floats(2.0**-20, 2.0**20, width=32)
    | st.floats(-(2.0**20), -(2.0**-20), width=32)
    | st.just(0.0)
)
near_overflow = st.sampled_from([3e38, -3e38, 3.4028234e38, -3.4028234e38, 1.7e38, 2e19, -2e19])
not_finite = st.sampled_from([float("inf"), float("-inf"), float("nan")])

# Three steps of four are good ones: else nearly no scale would ever grow.
good_grads = st.lists(ordinary | near_overflow, min_size=3, max_size=3)
any_grads = st.lists(ordinary | near_overflow | not_finite, min_size=3, max_size=3)
gradients = st.one_of(good_grads, good_grads, good_grads, any_grads)
sequences = st.lists(gradients, min_size=1, max_size=16)

FIXED: tuple[dict[str, Any], ...] = (
    {
        "initial_scale": 8.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2,
        "min_scale": 1.0,
        "max_scale": 32.0,
        "hysteresis": 1,
    },
    {
        "initial_scale": 1000.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.3,
        "growth_interval": 1,
        "min_scale": 1.5,
        "max_scale": 3e38,
        "hysteresis": 2,
    },
)

any_settings = st.fixed_dictionaries(
    {
        "initial_scale": st.floats(16, 2**20, width=32),
        "growth_factor": st.floats(1.0625, 2.0**60, width=32),
        "backoff_factor": st.floats(2.0**-60, 0.9375, width=32),
        "growth_interval": st.integers(1, 4),
        "min_scale": st.floats(1, 16, width=32),
        "max_scale": st.floats(2**20, 2.0**120, width=32),
        "hysteresis": st.integers(1, 4),
    }
)

quick = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
thorough = settings(quick, max_examples=400, derandomize=False)

Step = Callable[[Any], Any]


@cache
def machine(which: int, mode: str) -> tuple[amp.LossScaleOptimizer, Any, Step, list[Any]]:
    """An optimizer, its variable, a step that is traced once, and how it all began."""
    optimizer = scaled(
        keras.optimizers.SGD(LEARNING_RATE), **FIXED[which], max_consecutive_skips=None
    )
    weights = keras.Variable(START)
    optimizer.build([weights])
    step = in_mode(lambda grads: optimizer.apply([grads], [weights]), mode)
    return optimizer, weights, step, [v.numpy() for v in [weights, *optimizer.variables]]


def check_follows_the_reference(
    optimizer: amp.LossScaleOptimizer, weights: Any, step: Step, rule: Any, sequence: Any
) -> None:
    reference = Reference(START, np.float32(rule["initial_scale"]), rule)
    for grads in np.array(sequence, np.float32):
        step(tf.constant(grads))
        reference.step(grads)
        assert optimizer.loss_scale_state() == amp.LossScaleState(
            scale=float(reference.scale),
            applied_steps=reference.applied,
            skipped_steps=reference.skipped,
            consecutive_skips=reference.in_a_row,
            last_skipped_step=reference.last_skip,
            growths=reference.growths,
        )
        assert int(optimizer.iterations.numpy()) == reference.applied
        assert weights.numpy().tolist() == reference.weights.tolist()
        assert np.isfinite(weights.numpy()).all()
        assert rule["min_scale"] <= optimizer.loss_scale_state().scale <= rule["max_scale"]


def check_fixed(which: int, mode: str, sequence: Any) -> None:
    optimizer, weights, step, beginning = machine(which, mode)
    for variable, value in zip([weights, *optimizer.variables], beginning, strict=True):
        variable.assign(value)
    check_follows_the_reference(optimizer, weights, step, FIXED[which], sequence)


def check_any(rule: dict[str, Any], sequence: Any) -> None:
    inner = keras.optimizers.SGD(LEARNING_RATE)
    optimizer = scaled(inner, **rule, max_consecutive_skips=None)
    weights = keras.Variable(START)

    def step(grads: Any) -> None:
        optimizer.apply([grads], [weights])

    check_follows_the_reference(optimizer, weights, step, rule, sequence)


@in_each_mode
@pytest.mark.parametrize("which", range(len(FIXED)))
@quick
@given(sequence=sequences)
def test_any_gradients_leave_what_the_reference_says(which: int, mode: str, sequence: Any) -> None:
    check_fixed(which, mode, sequence)


@quick
@given(rule=any_settings, sequence=sequences)
def test_any_settings_move_the_scale_as_the_reference_says(rule: Any, sequence: Any) -> None:
    check_any(rule, sequence)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("which", range(len(FIXED)))
@thorough
@given(sequence=sequences)
def test_many_gradients_leave_what_the_reference_says(which: int, mode: str, sequence: Any) -> None:
    check_fixed(which, mode, sequence)


@pytest.mark.slow
@thorough
@given(rule=any_settings, sequence=sequences)
def test_many_settings_move_the_scale_as_the_reference_says(rule: Any, sequence: Any) -> None:
    check_any(rule, sequence)
