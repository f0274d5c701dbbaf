"""Cases of whole models under MirroredStrategy, in `fit` and in a custom loop."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.distributed import cases
from tests.distributed.loops import SCALE, Statistics
from tests.distributed.mirrored_steps import strategy_over

CASES = cases.Cases()

# The largest finite float16 is 65504.
BEYOND_FLOAT16 = 7e4


def fit(model: keras.Model, x: Any, y: Any, *, batch_size: int = 4, **options: Any) -> None:
    model.fit(x, y, batch_size=batch_size, shuffle=False, verbose=0, **options)


@CASES.case("fit half of a batch overflows")
def half_of_a_batch_overflows() -> Any:
    """L2: 25 weights, one batch of which replica 1 gets the half that overflows."""
    keras.config.set_dtype_policy("mixed_float16")
    with strategy_over(2).scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5)])
        optimizer = amp.make_loss_scale_optimizer("adam", initial_scale=SCALE)
        model.compile(optimizer, "mse")
        optimizer.build(model.trainable_variables)
        kept = [*model.variables, *optimizer.inner_optimizer.variables]
        before = cases.bits(kept)
        x = np.ones((4, 4), "float32")
        x[2:] = BEYOND_FLOAT16
        fit(model, x, np.zeros((4, 5)))
        return {"before": before, "after": cases.bits(kept), **cases.state_of(optimizer)}


@CASES.case("fit bad batch among good", {})
@CASES.case("fit bad batch among good, eager", {"run_eagerly": True})
def bad_batch_among_good(options: dict[str, Any]) -> Any:
    """The loss is w squared: SGD(0.25) halves w with each good batch."""
    with strategy_over(2).scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), dense])
        optimizer = amp.LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=SCALE)
        model.compile(optimizer, "mse", **options)
        x = np.ones((12, 1), "float32")
        x[6] = 1e30  # its square is infinite, on replica 1
        fit(model, x, np.zeros((12, 1)))
        return {"weights": cases.on_each_replica(dense.kernel), **cases.state_of(optimizer)}


@CASES.case("fit with an optimizer made outside")
def made_outside() -> Any:
    """The user forgot that the optimizer's variables have to be on each replica, too."""
    optimizer = amp.LossScaleOptimizer(keras.optimizers.SGD(0.25))
    with strategy_over(2).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(optimizer, "mse")
    x = np.ones((4, 1), "float32")
    error = cases.error_of(lambda: fit(model, x, x, callbacks=[amp.AmpMonitor(verbose=0)]))
    return str(error)


@CASES.case("statistics of the step that raises, eager", "eager")
@CASES.case("statistics of the step that raises, graph", "graph")
def statistics_of_the_step_that_raises(mode: str) -> Any:
    """A good step, and a bad one that is one too many."""
    loop = Statistics(strategy_over(2), is_protected=True, mode=mode, max_consecutive_skips=1)
    before = loop.step([0.0, 2.0], [4.0, 8.0])
    error = cases.error_of(lambda: loop.step([0.0, 2.0], [4.0, math.inf]))
    return {"raised": error is not None, "before": before, "after": loop.read()}


def statistics(strategy: tf.distribute.Strategy, mode: str, *, is_protected: bool) -> Any:
    """Good, bad on the last replica, good: mean 1 and variance 1 on replica 0, 6 and 4 on 1."""
    loop = Statistics(strategy, is_protected=is_protected, mode=mode)
    good, faulty = [[0.0, 2.0], [4.0, 8.0]], [[0.0, 2.0], [4.0, math.inf]]
    return [loop.step(*batches) for batches in (good, faulty, good)]


@CASES.case("monitor", {})
@CASES.case("monitor, eager", {"run_eagerly": True})
def monitor(options: dict[str, Any]) -> Any:
    """As above, with statistics beside the weight that nobody but the monitor protects."""
    with strategy_over(2).scope():
        inputs = keras.Input((1,))
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        normalization = keras.layers.BatchNormalization(momentum=0.5)
        model = keras.Model(inputs, dense(inputs) + 0.0 * normalization(inputs))
        optimizer = amp.LossScaleOptimizer(keras.optimizers.SGD(0.25), initial_scale=SCALE)
        model.compile(optimizer, "mse", **options)
        x = np.ones((12, 1), "float32")
        x[6] = 1e30  # its square is infinite, on replica 1
        callback = amp.AmpMonitor(verbose=0, max_skip_rate=None)
        history = model.fit(
            x, np.zeros((12, 1)), batch_size=4, shuffle=False, verbose=0, callbacks=[callback]
        )
        return {"means": cases.on_each_replica(normalization.moving_mean), **history.history}


@CASES.case("unable steps_per_execution")
def several_steps_per_execution() -> Any:
    """Gives the error of `fit` with plain Keras, and the one with the loss scaled."""
    errors = {}
    for name in ("plain", "scaled"):
        with strategy_over(2).scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(0.25)
            if name == "scaled":
                optimizer = amp.LossScaleOptimizer(optimizer)
            model.compile(optimizer, "mse", steps_per_execution=3)
        errors[name] = cases.error_of(partial(fit, model, np.ones((12, 1)), np.zeros((12, 1))))
    return errors


for _mode in ("eager", "graph"):
    for _is_protected in (False, True):
        CASES.case(
            f"statistics {_mode} {'protected' if _is_protected else 'exposed'}",
            lambda mode=_mode, is_protected=_is_protected: statistics(
                strategy_over(2), mode, is_protected=is_protected
            ),
        )(lambda run: run())


@CASES.case("fit never saw the bad batch", sees_bad=False)
@CASES.case("fit saw the bad batch", sees_bad=True)
def fit_with_statistics(*, sees_bad: bool) -> Any:
    """L4: clean batches, and one among them that overflows float16 on replica 1."""
    keras.config.set_dtype_policy("mixed_float16")
    with strategy_over(2).scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
        optimizer = amp.make_loss_scale_optimizer(
            keras.optimizers.SGD(2.0**-6), initial_scale=1024.0
        )
        model.compile(optimizer, "mse")
        optimizer.protect(model)
        generator = np.random.default_rng(cases.SEED)
        x, y = generator.normal(size=(40 * 4, 3)), generator.normal(size=(40 * 4, 1))
        if sees_bad:
            bad = np.full((4, 3), [[1.0], [1.0], [BEYOND_FLOAT16], [1.0]])
            x, y = np.insert(x, 40, bad, axis=0), np.insert(y, 40, np.zeros((4, 1)), axis=0)
        fit(model, x.astype("float32"), y)
        evaluated = model.evaluate(x[:4], y[:4], verbose=0)
        statistics = [cases.on_each_replica(v) for v in model.non_trainable_variables]
        return {"statistics": statistics, "loss": evaluated, **cases.state_of(optimizer)}
