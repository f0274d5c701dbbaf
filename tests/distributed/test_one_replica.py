"""With one replica: without a strategy, and under those that hold just one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.distributed import cases
from tests.distributed.loops import SCALE, Loop, Statistics
from tf_amp_kit import _keras

STRATEGIES: dict[str, Callable[[], tf.distribute.Strategy]] = {
    "none": tf.distribute.get_strategy,
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "mirrored": lambda: tf.distribute.MirroredStrategy(["CPU:0"]),
}

# F47: whether replicas meet in a merge call.
MEETS = {"none": False, "one device": True, "mirrored": True}

both_modes = pytest.mark.parametrize("mode", ["eager", "graph"])


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    return STRATEGIES[request.param]()


@pytest.mark.parametrize("name", STRATEGIES)
def test_both_branches_of_agreement_are_taken_here(name: str):
    with STRATEGIES[name]().scope():
        assert _keras.replicas_need_no_merge_call() is not MEETS[name]


@both_modes
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_bad_gradient_keeps_the_weights(
    strategy: tf.distribute.Strategy, mode: str, value: float
):
    loop = Loop(strategy, mode=mode)
    loop.step([[8.0, value, 8.0]])
    assert loop.values() == [[1.0, 1.0, 1.0]]


@both_modes
def test_a_bad_gradient_halves_the_scale(strategy: tf.distribute.Strategy, mode: str):
    loop = Loop(strategy, mode=mode)
    loop.step([[8.0, math.nan, 8.0]])
    assert loop.report()["scale"] == 4.0


@both_modes
def test_a_good_gradient_is_divided_and_applied(strategy: tf.distribute.Strategy, mode: str):
    loop = Loop(strategy, mode=mode)
    loop.step([[8.0, 16.0, 0.0]])
    assert loop.values() == [[0.0, -1.0, 1.0]]


@both_modes
def test_a_gradient_next_to_the_largest_float32_is_applied(
    strategy: tf.distribute.Strategy, mode: str
):
    # With one replica there is no sum that could overflow.
    loop = Loop(strategy, mode=mode, initial_scale=1.0, inner=lambda: keras.optimizers.SGD(2**-120))
    loop.step([[2.0**127, 0.0, 0.0]])
    assert loop.values() == [[-127.0, 1.0, 1.0]]


@both_modes
def test_a_skip_gives_the_statistics_back(strategy: tf.distribute.Strategy, mode: str):
    loop = Statistics(strategy, is_protected=True, mode=mode)
    means = [loop.step([0.0, last])["mean"] for last in (2.0, math.inf, 2.0)]
    assert means == [[[0.5]], [[0.5]], [[0.75]]]


def test_a_skip_keeps_every_bit_of_weights_slots_and_averages(strategy: tf.distribute.Strategy):
    def inner() -> keras.optimizers.Optimizer:
        return keras.optimizers.AdamW(0.5, weight_decay=0.5, use_ema=True)

    loop = Loop(strategy, mode="graph", inner=inner)
    loop.step([[8.0, 8.0, 8.0]])
    before = loop.all_bits()
    loop.step([[8.0, math.nan, 8.0]])
    assert loop.all_bits() == before


@pytest.mark.parametrize(
    ("mode", "error"),
    [("eager", amp.errors.TrainingStuckError), ("graph", tf.errors.InvalidArgumentError)],
)
def test_too_many_skips_raise(strategy: tf.distribute.Strategy, mode: str, error: type[Exception]):
    loop = Loop(strategy, mode=mode, max_consecutive_skips=2)
    loop.step([[8.0, math.nan, 8.0]])
    with pytest.raises(error, match="in each of them a gradient was not finite"):
        loop.step([[8.0, math.nan, 8.0]])


def test_a_call_across_replicas_is_refused():
    loop = Loop(STRATEGIES["mirrored"](), mode="eager")
    with (
        loop.strategy.scope(),
        pytest.raises(amp.errors.EnvironmentUnfit, match="Received: a call across replicas"),
    ):
        loop.optimizer.apply([tf.constant([8.0, 8.0, 8.0])], loop.variables)


# Ways in which `fit` runs its steps.
FITS: dict[str, dict[str, Any]] = {
    "graph": {},
    "eager": {"run_eagerly": True},
    "several steps per execution": {"steps_per_execution": 4},
    "compiled": {"jit_compile": True},
    "compiled, several steps per execution": {"jit_compile": True, "steps_per_execution": 4},
}


def fit_with_a_bad_batch(strategy: tf.distribute.Strategy, **options: Any) -> dict[str, Any]:
    """Eight batches, of which the third overflows; each good one halves the weight."""
    with strategy.scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        normalization = keras.layers.BatchNormalization(momentum=0.5)
        inputs = keras.Input((1,))
        # The loss does not depend on what is normalized.
        outputs = dense(inputs) + 0.0 * normalization(inputs)
        model = keras.Model(inputs, outputs)
        optimizer = amp.LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=SCALE)
        model.compile(optimizer, "mse", **options)
    optimizer.protect(model)
    x = np.ones((16, 1), "float32")
    x[5] = 1e30  # its square is infinite
    model.fit(x, np.zeros((16, 1), "float32"), batch_size=2, shuffle=False, verbose=0)
    return {
        "weight": float(dense.kernel.numpy().item()),
        "mean": float(normalization.moving_mean.numpy().item()),
        **cases.state_of(optimizer),
    }


@pytest.fixture(scope="module")
def fitted() -> dict[str, dict[str, Any]]:
    return {name: fit_with_a_bad_batch(STRATEGIES["none"](), **FITS[name]) for name in FITS}


@pytest.mark.parametrize("name", FITS)
def test_fit_applies_the_good_batches_alone(fitted: dict[str, Any], name: str):
    assert fitted[name]["weight"] == 2.0**-7


@pytest.mark.parametrize("name", FITS)
def test_fit_halves_the_scale_once_for_the_bad_batch(fitted: dict[str, Any], name: str):
    assert fitted[name]["scale"] == 4.0


@pytest.mark.parametrize("name", FITS)
def test_fit_counts_the_good_batches_as_iterations(fitted: dict[str, Any], name: str):
    assert fitted[name]["iterations"] == 7


@pytest.mark.parametrize("name", FITS)
def test_fit_knows_which_batch_was_bad(fitted: dict[str, Any], name: str):
    assert fitted[name]["last_skipped_step"] == 3


@pytest.mark.parametrize("name", FITS)
def test_fit_keeps_statistics_that_never_saw_the_bad_batch(fitted: dict[str, Any], name: str):
    # Seven times half of the way from 0 to 1.
    assert fitted[name]["mean"] == 1 - 2.0**-7


@pytest.mark.parametrize("name", ["one device", "mirrored"])
def test_fit_under_a_strategy_of_one_replica_is_the_same(name: str, fitted: dict[str, Any]):
    assert fit_with_a_bad_batch(STRATEGIES[name]()) == fitted["graph"]
