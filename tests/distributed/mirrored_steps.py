"""Cases of single steps under MirroredStrategy: who is bad, and what is done about it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from tests.distributed import cases
from tests.distributed.loops import Loop

BAD_VALUES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

CASES = cases.Cases()


@functools.cache
def strategy_over(num_replicas: int) -> tf.distribute.Strategy:
    """Gives the one strategy: TensorFlow numbers the reductions of each from the same start."""
    return tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(num_replicas)])


def subsets(num_replicas: int) -> list[tuple[int, ...]]:
    """Lists every choice of at least one replica."""
    return [
        chosen
        for size in range(1, num_replicas + 1)
        for chosen in itertools.combinations(range(num_replicas), size)
    ]


def skipped_step(num_replicas: int, mode: str, bad: Sequence[int], value: float) -> Any:
    """L1: one step, with one element of the gradient bad on some replicas."""
    loop = Loop(strategy_over(num_replicas), mode=mode)
    good, faulty = [8.0, 8.0, 8.0], [8.0, value, 8.0]
    loop.step(*([faulty if index in bad else good] for index in range(num_replicas)))
    return loop.report()


for _mode, _chosen, (_name, _value) in itertools.product(
    ("eager", "graph"), subsets(2), BAD_VALUES.items()
):
    CASES.case(f"skip 2 {_mode} {_chosen} {_name}", 2, _mode, _chosen, _value)(skipped_step)
for _mode, _chosen in itertools.product(("eager", "graph"), subsets(3)):
    CASES.case(f"skip 3 {_mode} {_chosen} nan", 3, _mode, _chosen, math.nan)(skipped_step)
for _index in range(4):
    CASES.case(f"skip 4 graph {(_index,)} inf", 4, "graph", (_index,), math.inf)(skipped_step)


@CASES.case("sum eager", "eager")
@CASES.case("sum graph", "graph")
def sum_of_true_gradients(mode: str) -> Any:
    loop = Loop(strategy_over(2), mode=mode, inner=lambda: keras.optimizers.SGD(0.5))
    loop.step([[8.0, 16.0, 24.0]], [[80.0, 0.0, -8.0]])
    return loop.report()


@CASES.case("sum overflows eager", "eager", 3e38)
@CASES.case("sum overflows graph", "graph", 3e38)
@CASES.case("sum just fits graph", "graph", 2.0**126)
def large_sum(mode: str, value: float) -> Any:
    loop = Loop(
        strategy_over(2),
        mode=mode,
        initial_scale=1.0,
        min_scale=1.0,
        inner=lambda: keras.optimizers.SGD(2.0**-120),
    )
    loop.step([[value, 0.0, 0.0]], [[value, 0.0, 0.0]])
    return loop.report()


@CASES.case("good after bad eager", "eager")
@CASES.case("good after bad graph", "graph")
def good_after_bad(mode: str) -> Any:
    """The scale is 8, then 4: the same true gradients make other scaled ones."""
    loop = Loop(strategy_over(2), mode=mode)
    loop.step([[8.0, 8.0, 8.0]], [[8.0, math.nan, 8.0]])
    loop.step([[4.0, 4.0, 4.0]], [[8.0, 8.0, 8.0]])
    return loop.report()


@CASES.case("clipped by hand eager", "eager")
@CASES.case("clipped by hand graph", "graph")
def clipped_by_hand(mode: str) -> Any:
    """What is clipped is finite; before that, replica 1 has an infinity."""

    def apply(optimizer: Any, grads: Any, variables: Any) -> None:
        clipped = [tf.clip_by_value(grad, -1.0, 1.0) for grad in optimizer.unscale(grads)]
        optimizer.apply_unscaled(clipped, variables)

    loop = Loop(strategy_over(2), mode=mode, apply=apply)
    weights = []
    for last in (math.inf, 2.0):
        loop.step([[32.0, 8.0, 2.0]], [[32.0, 8.0, last]])
        weights.append(loop.values())
    return {"weights of steps": weights, **loop.report()}


@CASES.case("growth")
def growth() -> Any:
    loop = Loop(strategy_over(2), mode="graph", growth_interval=2)
    scales = []
    for _ in range(4):
        loop.step([[0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]])
        scales.append(loop.report()["scale"])
    return scales


@CASES.case("stuck eager", "eager")
@CASES.case("stuck graph", "graph")
def stuck(mode: str) -> Any:
    loop = Loop(strategy_over(2), mode=mode, max_consecutive_skips=3)
    errors = []
    for _ in range(4):
        errors.append(cases.error_of(lambda: loop.step([[8.0, 8.0, 8.0]], [[8.0, math.nan, 8.0]])))
    return {"errors": errors, **loop.report()}


@CASES.case("across replicas")
def across_replicas() -> Any:
    loop = Loop(strategy_over(2), mode="eager")
    with loop.strategy.scope():
        return cases.error_of(
            lambda: loop.optimizer.apply([tf.constant([8.0, 8.0, 8.0])], loop.variables)
        )


@CASES.case("without merge calls")
def without_merge_calls() -> Any:
    """No CPU gets here: TensorFlow says so of GPUs under XLA."""
    loop = Loop(strategy_over(2), mode="eager")
    with mock.patch("tf_amp_kit._keras.replicas_need_no_merge_call", lambda: True):
        return cases.error_of(lambda: loop.step([[8.0, 8.0, 8.0]], [[8.0, 8.0, 8.0]]))
