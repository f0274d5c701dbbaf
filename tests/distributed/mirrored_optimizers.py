"""Cases of what an inner optimizer does beside its step, under MirroredStrategy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.distributed import cases
from tests.distributed.loops import Loop, embedding_step
from tests.distributed.mirrored_steps import strategy_over

CASES = cases.Cases()


def sparse(**how: Any) -> Any:
    return embedding_step(strategy_over(2), **how)


for _bad in ((), (0,), (1,), (0, 1)):
    CASES.case(f"sparse bad {_bad}", factor=math.nan, bad=_bad)(sparse)
CASES.case("sparse sum overflows", factor=1.7e38, bad=(0, 1), initial_scale=1.0)(sparse)


@CASES.case("none among the gradients", [8.0, 8.0, 8.0])
@CASES.case("none among bad gradients", [8.0, math.nan, 8.0])
def none_among_the_gradients(of_replica_1: Any) -> Any:
    loop = Loop(strategy_over(2), mode="eager", num_variables=2)
    loop.step([[8.0, 8.0, 8.0], None], [of_replica_1, None])
    with loop.strategy.scope():
        second = cases.on_each_replica(loop.variables[1])
    return {**loop.report(), "without gradient": second}


OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "clipnorm": lambda: keras.optimizers.SGD(1.0, clipnorm=1.0),
    "global_clipnorm": lambda: keras.optimizers.SGD(1.0, global_clipnorm=1.0),
    "clipvalue": lambda: keras.optimizers.SGD(1.0, clipvalue=1.0),
    "weight_decay": lambda: keras.optimizers.SGD(0.5, weight_decay=0.5),
    "momentum": lambda: keras.optimizers.SGD(1.0, momentum=0.5),
    "use_ema": lambda: keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5),
    "adamw": lambda: keras.optimizers.AdamW(0.5, weight_decay=0.5),
}


def bad_between_good(inner: str) -> Any:
    """Two good steps and a bad one between, which must leave no trace."""
    loop = Loop(strategy_over(2), mode="graph", inner=OPTIMIZERS[inner])
    loop.step([[24.0, 32.0, 0.0]], [[24.0, 32.0, 0.0]])
    first, before = loop.values(), loop.all_bits()
    loop.step([[8.0, 8.0, 8.0]], [[8.0, 8.0, math.inf]])
    after = loop.all_bits()
    loop.step([[12.0, 16.0, 0.0]], [[12.0, 16.0, 0.0]])
    return {"first": first, "before": before, "after": after, **loop.report()}


for _inner in OPTIMIZERS:
    CASES.case(f"bad between good {_inner}", _inner)(bad_between_good)


@CASES.case("global norm of two variables")
def global_norm_of_two_variables() -> Any:
    """True gradients of 3 and 4 on each replica, so that the norm over both is 5."""
    loop = Loop(
        strategy_over(2), mode="graph", inner=OPTIMIZERS["global_clipnorm"], num_variables=2
    )
    loop.step(*([[24.0, 0.0, 0.0], [32.0, 0.0, 0.0]] for _ in range(2)))
    with loop.strategy.scope():
        return [cases.on_each_replica(variable) for variable in loop.variables]


@CASES.case("average")
def average() -> Any:
    """Two good steps, a bad one between; gives the average on each replica."""
    loop = Loop(strategy_over(2), mode="graph", inner=OPTIMIZERS["use_ema"])
    averages = []
    for last in (1.0, math.inf, 1.0):
        loop.step([[1.0, 1.0, 1.0]], [[1.0, 1.0, last]])
        (kept,) = (
            variable
            for variable in loop.optimizer.inner_optimizer.variables
            if "average" in variable.path
        )
        with loop.strategy.scope():
            averages.append(cases.on_each_replica(kept))
    return averages


@CASES.case("global norm overflows")
def global_norm_overflows() -> Any:
    """Finite gradients, whose squares are not: on replica 1 alone."""
    loop = Loop(
        strategy_over(2),
        mode="graph",
        initial_scale=1.0,
        inner=OPTIMIZERS["global_clipnorm"],
    )
    loop.step([[1.0, 1.0, 1.0]], [[3e19, 1.0, 1.0]])
    return loop.report()


UNABLE: dict[str, dict[str, Any]] = {
    "gradient_accumulation_steps": {"gradient_accumulation_steps": 2},
    "ema_overwrite_frequency": {"use_ema": True, "ema_overwrite_frequency": 2},
    "slots without build": {"momentum": 0.5},
}


def what_keras_cannot_do(kind: str) -> Any:
    """Gives the error of plain Keras in a graph, and the one with the loss scaled."""
    strategy = strategy_over(2)
    errors = {}
    for name in ("plain", "scaled"):
        with strategy.scope():
            variable = keras.Variable(np.ones(3, "float32"))
            optimizer = keras.optimizers.SGD(1.0, **UNABLE[kind])
            if name == "scaled":
                optimizer = amp.LossScaleOptimizer(optimizer)
            if "without build" not in kind:
                optimizer.build([variable])
        optimizer.scale_loss(0.0)

        def step(optimizer: Any = optimizer, variable: Any = variable) -> None:
            optimizer.apply([tf.ones(3)], [variable])

        errors[name] = cases.error_of(tf.function(lambda step=step: strategy.run(step)))
    return errors


for _kind in UNABLE:
    CASES.case(f"unable {_kind}", _kind)(what_keras_cannot_do)


@CASES.case("accumulation eager")
def accumulation_eager() -> Any:
    """Runs without a graph, where Keras's condition is one of Python."""
    loop = Loop(
        strategy_over(2),
        mode="eager",
        inner=lambda: keras.optimizers.SGD(1.0, gradient_accumulation_steps=2),
    )
    loop.step([[8.0, 8.0, 8.0]], [[24.0, 24.0, 24.0]])
    before = loop.all_bits()
    loop.step([[8.0, 8.0, 8.0]], [[24.0, math.nan, 24.0]])
    after = loop.all_bits()
    loop.step([[4.0, 4.0, 4.0]], [[12.0, 12.0, 12.0]])
    return {"before": before, "after": after, **loop.report()}


@CASES.case("without build eager", "eager")
@CASES.case("without build graph", "graph")
def without_build(mode: str) -> Any:
    loop = Loop(strategy_over(2), mode=mode, is_built=False)
    loop.step([[8.0, 8.0, 8.0]], [[8.0, 8.0, 8.0]])
    return loop.report()
