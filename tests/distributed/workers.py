"""Cases under MultiWorkerMirroredStrategy; each worker of a cluster runs all of them.

The numbers of the loops are powers of two and small integers, so that their
results are exact: SGD(0.25), and a gradient of k + 1 at step k on each worker.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.distributed import cases
from tests.distributed.loops import SCALE, Loop, Statistics, distributed, embedding_step

NUM_STEPS = 4

CASES = cases.Cases()

# Before any operation: only then can TensorFlow join a cluster.
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
NUM_WORKERS = STRATEGY.num_replicas_in_sync


def quarter() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.25)


def four_steps(bad: Iterable[tuple[int, int]], *, mode: str = "graph", **options: Any) -> Any:
    """L3: four steps, of which some are bad on some workers: pairs of worker and step."""
    loop = Loop(STRATEGY, mode=mode, inner=quarter, **options)
    iterations = []
    for step in range(NUM_STEPS):
        scale = loop.optimizer.loss_scale_state().scale
        grads = np.full((NUM_WORKERS, 3), scale * (step + 1), "float32")
        for worker, bad_step in bad:
            if step == bad_step:
                grads[worker, 1] = math.inf
        loop.step(*([of_worker] for of_worker in grads))
        iterations.append(cases.numbers(loop.optimizer.iterations))
    return {"iterations of steps": iterations, **loop.report()}


for _worker, _step in itertools.product(range(NUM_WORKERS), range(NUM_STEPS)):
    CASES.case(f"bad {_worker} at {_step}", [(_worker, _step)])(four_steps)
for _step in range(NUM_STEPS):
    CASES.case(f"all bad at {_step}", [(w, _step) for w in range(NUM_WORKERS)])(four_steps)
CASES.case("each bad at another step", [(w, w) for w in range(NUM_WORKERS)])(four_steps)
CASES.case("eager, bad at 0", [(NUM_WORKERS - 1, 0)], mode="eager")(four_steps)
CASES.case("without build", [(NUM_WORKERS - 1, 0)], is_built=False)(four_steps)


@CASES.case("different gradients")
def different_gradients() -> Any:
    """Each worker has the gradient of its number, counted from 1."""
    loop = Loop(STRATEGY, mode="graph", inner=quarter)
    loop.step(*([[SCALE * (worker + 1)] * 3] for worker in range(NUM_WORKERS)))
    return loop.report()


@CASES.case("sum overflows")
def sum_overflows() -> Any:
    loop = Loop(STRATEGY, mode="graph", inner=quarter, initial_scale=1.0, min_scale=1.0)
    loop.step(*([[3e38, 0.0, 0.0]] for _ in range(NUM_WORKERS)))
    return loop.report()


CASES.case("sparse good", STRATEGY, factor=1.0, bad=())(embedding_step)
CASES.case("sparse bad", STRATEGY, factor=math.nan, bad=(1,))(embedding_step)


@CASES.case("slots")
def slots() -> Any:
    """AdamW with its slots and an average, before and after a bad step."""
    loop = Loop(
        STRATEGY,
        mode="graph",
        inner=lambda: keras.optimizers.AdamW(0.5, weight_decay=0.5, use_ema=True),
    )
    loop.step(*([[8.0, 8.0, 8.0]] for _ in range(NUM_WORKERS)))
    before = loop.all_bits()
    loop.step(*([[8.0, math.nan if worker else 8.0, 8.0]] for worker in range(NUM_WORKERS)))
    return {"before": before, "after": loop.all_bits()}


@CASES.case("statistics eager", "eager")
@CASES.case("statistics graph", "graph")
def statistics(mode: str) -> Any:
    """Good, bad on the last worker, good; worker w sees 4 * w + 0 and 4 * w + 2."""
    loop = Statistics(STRATEGY, is_protected=True, mode=mode)
    good = [[4.0 * worker, 4.0 * worker + 2] for worker in range(NUM_WORKERS)]
    faulty = [*good[:-1], [4.0, math.inf]]
    return [loop.step(*batches) for batches in (good, faulty, good)]


@CASES.case("stuck eager", "eager")
@CASES.case("stuck graph", "graph")
def stuck(mode: str) -> Any:
    """Bad at one worker after the other; three in a row are too many."""
    loop = Loop(STRATEGY, mode=mode, inner=quarter, max_consecutive_skips=3)
    errors = []
    for step in range(4):
        grads = [[[8.0, 8.0, 8.0]] for _ in range(NUM_WORKERS)]
        grads[step % NUM_WORKERS] = [[8.0, math.nan, 8.0]]
        errors.append(cases.error_of(partial(loop.step, *grads)))
    return {"errors": errors, **loop.report()}


@CASES.case("statistics of the step that raises")
def statistics_of_the_step_that_raises() -> Any:
    """A good step, and one that is bad on the last worker and one too many."""
    loop = Statistics(STRATEGY, is_protected=True, mode="graph", max_consecutive_skips=1)
    good = [[4.0 * worker, 4.0 * worker + 2] for worker in range(NUM_WORKERS)]
    before = loop.step(*good)
    error = cases.error_of(lambda: loop.step(*good[:-1], [4.0, math.inf]))
    return {"raised": error is not None, "before": before, "after": loop.read()}


@CASES.case("good after stuck")
def good_after_stuck() -> Any:
    """The cluster still works after the errors above."""
    return four_steps([])


@CASES.case("train step of Keras")
def train_step_of_keras() -> Any:
    """What `fit` would run, run by hand; the last worker's second batch overflows."""
    with STRATEGY.scope():
        dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((1,)), dense])
        optimizer = amp.LossScaleOptimizer(quarter(), initial_scale=SCALE)
        model.compile(optimizer, "mse")
        optimizer.build(model.trainable_variables)

    @tf.function
    def run(batches: Any) -> None:
        STRATEGY.run(lambda x: model.train_step((x, tf.zeros((2, 1)))), args=(batches,))

    for is_bad in (False, True, False):
        batches = np.ones((NUM_WORKERS, 2, 1), "float32")
        batches[-1, -1] = 1e30 if is_bad else 1.0  # its square is infinite
        run(distributed(STRATEGY, lambda worker, given=batches: tf.constant(given[worker])))
    with STRATEGY.scope():
        return {"weights": cases.on_each_replica(dense.kernel), **cases.state_of(optimizer)}


@CASES.case("fit")
def fit() -> Any:
    """Gives the error of `fit` with plain Keras, and the one with the loss scaled."""
    errors = {}
    for name in ("plain", "scaled"):
        with STRATEGY.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(0.25)
            if name == "scaled":
                optimizer = amp.LossScaleOptimizer(optimizer)
            model.compile(optimizer, "mse")
        errors[name] = cases.error_of(
            lambda model=model: model.fit(np.ones((8, 1)), np.zeros((8, 1)), verbose=0)
        )
    return errors


if __name__ == "__main__":
    cases.main(CASES)
