"""What each worker of the soak does; `soak` starts two of them."""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.distributed import cases
from tests.distributed.loops import distributed

CASES = cases.Cases()

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
NUM_WORKERS = STRATEGY.num_replicas_in_sync

BATCH_SIZE, NUM_FEATURES = 4, 3
CHECK_INTERVAL = 500

INITIAL_SCALE, MIN_SCALE, MAX_SCALE = 2.0**10, 1.0, 2.0**16
GROWTH_INTERVAL, HYSTERESIS = 10, 2

# A burst of bad steps begins with this probability, and lasts up to so many.
BURST_PROBABILITY, LONGEST_BURST = 0.02, 24

# No weight of a net that learns this little has a reason to be larger.
LARGEST_WEIGHT = 100.0


@dataclass
class Expected:
    """The algorithm in plain numbers, written from its description."""

    scale: float = INITIAL_SCALE
    good_steps: int = 0
    applied: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    last_skip: int | None = None
    growths: int = 0

    def skip(self) -> None:
        self.skipped += 1
        self.skipped_in_a_row += 1
        self.last_skip = self.applied + self.skipped
        self.good_steps = 0
        if self.skipped_in_a_row >= HYSTERESIS:
            self.scale = max(self.scale / 2, MIN_SCALE)

    def apply(self) -> None:
        self.applied += 1
        self.skipped_in_a_row = 0
        self.good_steps += 1
        if self.good_steps == GROWTH_INTERVAL:
            self.good_steps = 0
            self.growths += self.scale < MAX_SCALE
            self.scale = min(self.scale * 2, MAX_SCALE)


def seen_of(optimizer: amp.LossScaleOptimizer) -> Expected:
    state = optimizer.loss_scale_state()
    return Expected(
        scale=state.scale,
        good_steps=cases.numbers(optimizer.step_counter),
        applied=state.applied_steps,
        skipped=state.skipped_steps,
        skipped_in_a_row=state.consecutive_skips,
        last_skip=state.last_skipped_step,
        growths=state.growths,
    )


def faults(generator: random.Random) -> Iterator[list[str | None]]:
    """Gives for each step what is wrong on each worker: the same everywhere."""
    left = 0
    while True:
        if not left and generator.random() < BURST_PROBABILITY:
            left = generator.randint(1, LONGEST_BURST)
        kinds: list[str | None] = [None] * NUM_WORKERS
        if left:
            left -= 1
            for worker in generator.sample(range(NUM_WORKERS), generator.randint(1, NUM_WORKERS)):
                kinds[worker] = generator.choice(["nan", "inf", "-inf", "huge"])
        yield kinds


class Learner:
    """A net with moving statistics, and the step that trains it."""

    def __init__(self, *, is_scaled: bool) -> None:
        keras.utils.set_random_seed(cases.SEED)
        with STRATEGY.scope():
            self.model = keras.Sequential(
                [
                    keras.Input((NUM_FEATURES,)),
                    keras.layers.Dense(4),
                    keras.layers.BatchNormalization(),
                    keras.layers.Dense(1),
                ]
            )
            self.optimizer: Any = keras.optimizers.Adam(2.0**-10)
            if is_scaled:
                self.optimizer = amp.LossScaleOptimizer(
                    self.optimizer,
                    initial_scale=INITIAL_SCALE,
                    min_scale=MIN_SCALE,
                    max_scale=MAX_SCALE,
                    growth_interval=GROWTH_INTERVAL,
                    hysteresis=HYSTERESIS,
                )
            self.optimizer.build(self.model.trainable_variables)
        if is_scaled:
            self.optimizer.protect(self.model)
        self.run = tf.function(lambda *batches: STRATEGY.run(self._step, args=batches))

    def _step(self, x: Any, factor: Any) -> None:
        with tf.GradientTape() as tape:
            error = self.model(x, training=True) - tf.reduce_sum(x, axis=1, keepdims=True)
            loss = self.optimizer.scale_loss(tf.reduce_mean(error**2) * factor * factor)
        variables = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)

    def bits(self, variables: Any) -> list[list[str]]:
        with STRATEGY.scope():
            return cases.bits(variables)


@CASES.case("soak")
def soak() -> Any:
    """Trains with faults, and beside it a plain learner that never sees a bad step."""
    num_steps = int(sys.argv[3])
    scaled, plain, expected = Learner(is_scaled=True), Learner(is_scaled=False), Expected()
    data, kinds_of_steps = np.random.default_rng(cases.SEED), faults(random.Random(cases.SEED))
    checks, scales = [], set()
    for step in range(1, num_steps + 1):
        x = data.normal(size=(NUM_WORKERS, BATCH_SIZE, NUM_FEATURES)).astype("float32")
        factors = np.ones(NUM_WORKERS, "float32")
        kinds = next(kinds_of_steps)
        is_bad = any(kinds)
        if not is_bad:
            plain.run(*_batches(x, factors))
        for worker, kind in enumerate(kinds):
            if kind == "huge":
                factors[worker] = 1e38  # its square is infinite
            elif kind is not None:
                x[worker, 0, 0] = float(kind)
        scaled.run(*_batches(x, factors))
        expected.skip() if is_bad else expected.apply()
        scales.add(expected.scale)
        if step % CHECK_INTERVAL == 0 or step == num_steps:
            checks.append(_check(step, scaled, plain, expected))
            print(checks[-1], flush=True)
    return {"checks": checks, "scales": [min(scales), max(scales)], **asdict(expected)}


def _batches(x: Any, factors: Any) -> list[Any]:
    return [
        distributed(STRATEGY, lambda worker, given=given: tf.constant(given[worker]))
        for given in (x, factors)
    ]


def _check(step: int, scaled: Learner, plain: Learner, expected: Expected) -> dict[str, Any]:
    seen = seen_of(scaled.optimizer)
    assert seen == expected, f"step {step}: {seen} instead of {expected}"
    largest = max(float(np.abs(values).max()) for values in scaled.model.get_weights())
    assert math.isfinite(largest) and largest < LARGEST_WEIGHT, f"step {step}: {largest}"
    inner = scaled.optimizer.inner_optimizer
    for name, ours, theirs in (
        ("weights and statistics", scaled.model.variables, plain.model.variables),
        ("slots and iterations", inner.variables, plain.optimizer.variables),
    ):
        assert scaled.bits(ours) == plain.bits(theirs), f"step {step}: other {name}"
    weights = scaled.bits(scaled.model.trainable_variables)
    return {"step": step, "weights": hashlib.sha256(repr(weights).encode()).hexdigest()}


if __name__ == "__main__":
    cases.main(CASES)
