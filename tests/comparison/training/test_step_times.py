"""Timed train steps: what they do, and what is told of them; never how long they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.comparison.training.given import SEED, X, Y, candidate, dense, stateful
from tf_amp_kit.comparison.training import step_times
from tf_amp_kit.comparison.training.record.parts import StepSpeed
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.sources import Source
from tf_amp_kit.comparison.training.step_times import Speeds, StepClock, measure_speeds
from tf_amp_kit.data import Batch

BATCH = Batch(tf.constant(X[:8]), tf.constant(Y[:8]))


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "_MAX_ROUNDS", 3)


def speeds_of(
    build_fn: Callable[[], keras.Model], *precisions: str, jit: bool = False, data: Any = (X, Y)
) -> Speeds:
    candidates = [candidate(one) for one in precisions]
    return measure_speeds(Builder(build_fn, True), candidates, Source(data, 8), SEED, jit)


def scaled() -> keras.Model:
    """Skips its first steps in float16."""
    return stateful(amp.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=2.0**20))


# ------------------------------------------------------------------------------ the step


# AmpMonitor tells of skipped steps, which this is about.
@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.LossScaleWarning")
@pytest.mark.parametrize(
    ("build_fn", "precision"),
    [(stateful, "fp32"), (stateful, "bf16"), (scaled, "fp16")],
)
def test_the_clock_makes_the_steps_that_fit_makes(build_fn: Any, precision: str) -> None:
    builder, one = Builder(build_fn, True), candidate(precision)
    with builder.model(one, SEED, BATCH) as timed:
        clock = StepClock(timed, BATCH, jit_compile=False)
        clock()
        clock()
    with builder.model(one, SEED, BATCH) as fitted:
        monitor = [amp.AmpMonitor()] if build_fn is scaled else None
        fitted.fit(
            X[:8], Y[:8], batch_size=8, epochs=3, shuffle=False, verbose=0, callbacks=monitor
        )
    for left, right in zip(timed.weights, fitted.weights, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy())


def test_with_xla_the_clock_makes_nearly_the_same_steps() -> None:
    weights = []
    for is_compiled in (False, True):
        with Builder(dense, True).model(candidate("fp32"), SEED, BATCH) as model:
            StepClock(model, BATCH, jit_compile=is_compiled)()
            weights.append(model.get_weights())
    for left, right in zip(*weights, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_step_is_compiled_as_asked_for_whatever_the_builder_said(is_compiled: bool) -> None:
    def build() -> keras.Model:
        return dense(jit_compile=not is_compiled)

    with Builder(build, True).model(candidate("fp32"), SEED, BATCH) as model:
        StepClock(model, BATCH, jit_compile=is_compiled)
        assert model.jit_compile is is_compiled


def test_the_first_step_was_timed_and_made() -> None:
    with Builder(dense, True).model(candidate("fp32"), SEED, BATCH) as model:
        clock = StepClock(model, BATCH, jit_compile=False)
        assert (clock.first_seconds > 0, int(model.optimizer.iterations)) == (True, 1)


# ------------------------------------------------------------------------- what is told


def test_each_precision_is_timed_with_and_without_xla() -> None:
    speeds = speeds_of(dense, "fp32", "bf16", jit=True)
    assert set(speeds) == {(name, jit) for name in ("float32", "bfloat16") for jit in (False, True)}


def test_without_jit_xla_is_not_timed() -> None:
    assert set(speeds_of(dense, "fp32", "bf16")) == {("float32", False), ("bfloat16", False)}


def test_a_speed_has_quartiles_in_order_and_no_failure() -> None:
    speed = speeds_of(dense, "fp32")["float32", False]
    seconds = speed.seconds
    assert 0 < seconds.low <= seconds.median <= seconds.high
    assert (speed.failure, speed.compile_seconds >= 0) == ("", True)


def test_examples_per_second_are_those_of_a_batch_at_the_median() -> None:
    speed = speeds_of(dense, "fp32")["float32", False]
    assert speed.examples_per_second * speed.seconds.median == pytest.approx(8)


@pytest.mark.parametrize(("first", "expected"), [(42.0, 42.0), (0.0, 0.0)])
def test_what_the_first_step_took_beyond_the_median_is_compiling(
    monkeypatch: pytest.MonkeyPatch, first: float, expected: float
) -> None:
    init = StepClock.__init__

    def late(self: StepClock, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.first_seconds = first

    monkeypatch.setattr(StepClock, "__init__", late)
    speed = speeds_of(dense, "fp32")["float32", False]
    assert speed.compile_seconds == max(0.0, expected - speed.seconds.median)


def test_inputs_of_several_arrays_have_the_samples_of_the_first() -> None:
    def build() -> keras.Model:
        one, two = keras.Input((6,), name="one"), keras.Input((2,), name="two")
        hidden = layers.Concatenate()([one, two])
        model = keras.Model({"one": one, "two": two}, layers.Dense(2)(hidden))
        model.compile("sgd", "mse")
        return model

    speed = speeds_of(build, "fp32", data=({"one": X, "two": Y}, Y))["float32", False]
    assert speed.examples_per_second * speed.seconds.median == pytest.approx(8)


class Uncompilable(layers.Layer):
    """XLA has no kernel for what Python computes."""

    def call(self, inputs: Any) -> Any:
        ones = tf.numpy_function(lambda: np.float32(1), [], tf.float32)
        return inputs * tf.cast(tf.ensure_shape(ones, ()), inputs.dtype)


def uncompilable() -> keras.Model:
    model = keras.Sequential([keras.Input((6,)), layers.Dense(2), Uncompilable()])
    model.compile("sgd", "mse")
    return model


def test_a_failure_of_xla_is_told_and_the_plain_step_timed() -> None:
    speeds = speeds_of(uncompilable, "fp32", jit=True)
    plain, jit = speeds["float32", False], speeds["float32", True]
    assert (plain.failure, jit.seconds) == ("", None)
    assert jit.failure.startswith("InvalidArgumentError: ") and "\n" not in jit.failure


def test_a_precision_that_cannot_be_built_does_not_keep_others_from_their_times() -> None:
    class OnlyFloat32(layers.Dense):
        def call(self, inputs: Any) -> Any:
            if self.compute_dtype != "float32":
                raise ValueError("Only float32.")
            return super().call(inputs)

    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((6,)), OnlyFloat32(8), layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    speeds = speeds_of(build, "fp32", "bf16")
    assert speeds["float32", False].failure == ""
    assert speeds["bfloat16", False] == StepSpeed(None, failure=speeds["bfloat16", False].failure)
    assert speeds["bfloat16", False].failure.startswith("ValueError: ")


def test_where_nothing_runs_nothing_is_timed() -> None:
    def build() -> keras.Model:
        raise ValueError("mine")

    assert speeds_of(build, "bf16") == {
        ("bfloat16", False): StepSpeed(None, failure="ValueError: mine")
    }


def test_nothing_global_is_left() -> None:
    def states() -> tuple[Any, ...]:
        return keras.config.dtype_policy().name, amp.current_amp(), tf.config.optimizer.get_jit()

    before = states()
    speeds_of(dense, "fp16")
    assert states() == before
