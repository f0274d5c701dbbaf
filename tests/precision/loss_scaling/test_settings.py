"""Every setting is checked where it is given, and says what it got."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import INF, NAN

# The smallest and the largest normal float32, and the float64 next to 1.
FROM_TINY = "Expected a number from 1.17549e-38 to 3.40282e+38 as "


def make(**settings: Any) -> amp.LossScaleOptimizer:
    return amp.LossScaleOptimizer(keras.optimizers.SGD(), **settings)


@pytest.mark.parametrize("name", ["initial_scale", "min_scale", "max_scale"])
@pytest.mark.parametrize("value", [0, -1.0, INF, -INF, NAN, 1e-39, 1e39, True, None, "8", [8]])
def test_a_scale_that_float32_cannot_divide_by_is_refused(name: str, value: Any) -> None:
    with pytest.raises(
        amp.errors.OptimizerError,
        match=re.escape(f"{FROM_TINY}{name}. Received: {name}={value!r}."),
    ):
        make(**{name: value})


@pytest.mark.parametrize("value", [1, 1.0, 0.5, 0, -2, NAN, INF, True, None, "2"])
def test_a_growth_factor_must_be_above_1_and_finite(value: Any) -> None:
    expected = "Expected a number above 1 as growth_factor. "
    with pytest.raises(
        amp.errors.OptimizerError, match=re.escape(f"{expected}Received: growth_factor={value!r}.")
    ):
        make(growth_factor=value)


@pytest.mark.parametrize("value", [0, 1, 1.0, 2.0, -0.5, NAN, INF, False, None, "0.5"])
def test_a_backoff_factor_must_be_between_0_and_1(value: Any) -> None:
    expected = "Expected a number between 0 and 1 as backoff_factor. "
    with pytest.raises(
        amp.errors.OptimizerError, match=re.escape(f"{expected}Received: backoff_factor={value!r}.")
    ):
        make(backoff_factor=value)


@pytest.mark.parametrize("name", ["growth_interval", "hysteresis"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 2.0, NAN, True, None, "2"])
def test_a_count_of_steps_must_be_a_whole_number_from_1_up(name: str, value: Any) -> None:
    expected = f"Expected a whole number of steps from 1 up as {name}. "
    with pytest.raises(
        amp.errors.OptimizerError, match=re.escape(f"{expected}Received: {name}={value!r}.")
    ):
        make(**{name: value})


@pytest.mark.parametrize("value", [0, -1, 2.5, INF, True, "2"])
def test_max_consecutive_skips_must_be_a_whole_number_or_none(value: Any) -> None:
    expected = "Expected a whole number of steps from 1 up or None as max_consecutive_skips. "
    with pytest.raises(
        amp.errors.OptimizerError,
        match=re.escape(f"{expected}Received: max_consecutive_skips={value!r}."),
    ):
        make(max_consecutive_skips=value)


@pytest.mark.parametrize("value", ["fixed", "Dynamic", "", None, True, 1])
def test_an_unknown_kind_of_scaling_is_refused(value: Any) -> None:
    message = (
        "Unknown kind of loss scaling. Expected 'dynamic' or 'static'. "
        f"Received: scaling={value!r}."
    )
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        make(scaling=value)


@pytest.mark.parametrize(
    "settings",
    [
        {"initial_scale": 0.5},
        {"initial_scale": 2.0**25},
        {"min_scale": 2.0**16},
        {"max_scale": 1024.0},
        {"initial_scale": 8.0, "min_scale": 9.0, "max_scale": 7.0},
    ],
)
def test_a_scale_that_starts_outside_its_bounds_is_refused(settings: dict[str, float]) -> None:
    bounds = {"initial_scale": 2.0**15, "min_scale": 1.0, "max_scale": 2.0**24, **settings}
    message = (
        "The loss scale must start inside its bounds. Expected min_scale <= initial_scale <= "
        f"max_scale. Received: {', '.join(f'{name}={value}' for name, value in bounds.items())}."
    )
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        make(**settings)


@pytest.mark.parametrize("scale", [2.0**-10, 2.0**30])
def test_a_static_scale_may_be_any_that_float32_holds(scale: float) -> None:
    assert make(scaling="static", initial_scale=scale).loss_scale_state().scale == scale


def test_bounds_that_meet_are_allowed() -> None:
    assert make(initial_scale=8, min_scale=8, max_scale=8).loss_scale_state().scale == 8


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initial_scale", np.float32(8)),
        ("initial_scale", np.int64(8)),
        ("growth_factor", np.float64(3)),
        ("growth_interval", np.int32(5)),
        ("hysteresis", np.int64(2)),
        ("max_consecutive_skips", np.int16(7)),
    ],
)
def test_numpy_numbers_are_taken_and_kept_as_plain_ones(name: str, value: Any) -> None:
    kept = make(**{name: value}).get_config()[name]
    assert kept == value and type(kept) in (int, float)


def test_the_defaults_are_the_documented_ones() -> None:
    config = make().get_config()
    assert {name: config[name] for name in config if name not in ("name", "inner_optimizer")} == {
        "scaling": "dynamic",
        "initial_scale": 32768.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "min_scale": 1.0,
        "max_scale": 16777216.0,
        "hysteresis": 1,
        "max_consecutive_skips": 50,
    }


@pytest.mark.parametrize("inner", ["adam", None, {"class_name": "SGD"}, keras.optimizers.SGD, 1e-3])
def test_only_an_instance_of_an_optimizer_can_be_wrapped(inner: Any) -> None:
    message = (
        "Expected a keras.optimizers.Optimizer as inner_optimizer. "
        f"Received: {inner!r}. Use make_loss_scale_optimizer() for a name or a config."
    )
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        amp.LossScaleOptimizer(inner)


@pytest.mark.parametrize("wrapper", [amp.LossScaleOptimizer, keras.optimizers.LossScaleOptimizer])
def test_an_optimizer_that_scales_already_is_not_wrapped_again(wrapper: Any) -> None:
    message = (
        "A loss is scaled once. Expected an optimizer that does not scale as inner_optimizer. "
        "Received: LossScaleOptimizer. "
        "Use make_loss_scale_optimizer(), which takes its state over."
    )
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        amp.LossScaleOptimizer(wrapper(keras.optimizers.SGD()))


def test_a_loss_scale_factor_of_the_inner_optimizer_is_refused_not_dropped() -> None:
    inner = keras.optimizers.SGD(loss_scale_factor=128.0)
    message = (
        "Gradients would be divided twice. Expected an inner_optimizer without a factor. "
        "Received: loss_scale_factor=128.0. "
        "Use make_loss_scale_optimizer(), which keeps it as a static scale."
    )
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        amp.LossScaleOptimizer(inner)
    assert inner.loss_scale_factor == 128.0


def test_settings_are_checked_before_the_inner_optimizer_is_touched() -> None:
    inner = keras.optimizers.SGD()
    before = len(inner.variables)
    with pytest.raises(amp.errors.OptimizerError):
        amp.LossScaleOptimizer(inner, hysteresis=0)
    assert (len(inner.variables), inner.loss_scale_factor) == (before, None)


def test_settings_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        amp.LossScaleOptimizer(keras.optimizers.SGD(), 1024.0)
