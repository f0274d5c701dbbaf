"""What loss scaling adds to a train step: nothing, Keras's optimizer, ours.

    python -m tests.benchmarks.bench_loss_scale [--steps 300] [--settings NAME ...] [--quick]

Multilayer perceptrons in float32 with Adam, on one constant batch. Few samples make a
step bound by its parameters, where an optimizer shows most; many make it bound by its
matrix products. Each setting is taken in graph mode and with jit_compile=True. Two
extra settings have BatchNormalization, which ours alone protects.

Single train steps are timed, round after round in one process, each round one step of
each optimizer in another order. A ratio is that of two steps of one round, so a machine
that slows down for a while slows down both. Ours runs with counters, bounds, the limit
on skipped steps and protection, as it does by default; one replica agrees with itself.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tf_amp_kit
from tests.benchmarks.rounds import interleaved, quartiles

NUM_CLASSES = 10
# So small that the gradients, and with them the arithmetic, stay what they are.
LEARNING_RATE = 1e-6
# Of what Keras's optimizer adds. A twentieth of a step is too little to halve.
GOAL = 0.5
SMALL_ADDITION, SMALL_GOAL = 0.05, 0.02


@dataclass(frozen=True)
class Setting:
    """A model and how its train step is compiled."""

    num_layers: int
    width: int
    batch: int
    jit_compile: bool = False
    normalizes: bool = False


def _both_modes(name: str, *numbers: int, normalizes: bool = False) -> dict[str, Setting]:
    return {
        f"{mode}-{name}": Setting(*numbers, jit_compile=mode == "jit", normalizes=normalizes)
        for mode in ("graph", "jit")
    }


SETTINGS: dict[str, Setting] = {
    **_both_modes("40x256", 40, 256, 32),
    **_both_modes("6x1024", 6, 1024, 32),
    **_both_modes("6x1024-batch256", 6, 1024, 256),
    **_both_modes("40x256-batchnorm", 40, 256, 32, normalizes=True),
}
QUICK = ("graph-40x256", "jit-6x1024")


def without_scaling(model: keras.Model) -> Any:
    """Return a plain Adam."""
    return keras.optimizers.Adam(LEARNING_RATE)


def keras_scaling(model: keras.Model) -> Any:
    """Return Adam in Keras's wrapper."""
    return keras.optimizers.LossScaleOptimizer(without_scaling(model))


def our_scaling(model: keras.Model) -> Any:
    """Return Adam in our wrapper, which protects the model's state."""
    optimizer = tf_amp_kit.LossScaleOptimizer(without_scaling(model))
    optimizer.protect(model)
    return optimizer


OPTIMIZERS: dict[str, Callable[[keras.Model], Any]] = {
    "none": without_scaling,
    "keras": keras_scaling,
    "ours": our_scaling,
}


def perceptron(setting: Setting) -> keras.Model:
    """Return a multilayer perceptron; every call gives the same weights."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((setting.width,))
    hidden = inputs
    for _ in range(setting.num_layers):
        hidden = layers.Dense(setting.width, activation="relu")(hidden)
        if setting.normalizes:
            hidden = layers.BatchNormalization()(hidden)
    return keras.Model(inputs, layers.Dense(NUM_CLASSES)(hidden))


class TrainStep:
    """One optimizer's train step on a batch that stays the same."""

    def __init__(self, setting: Setting, make_optimizer: Callable[[keras.Model], Any]) -> None:
        model = perceptron(setting)
        self.optimizer = make_optimizer(model)
        self.optimizer.build(model.trainable_variables)
        self.num_calls = 0
        random = np.random.default_rng(0)
        shape = (setting.batch, setting.width)
        self._batch = (
            tf.constant(random.standard_normal(shape, dtype="float32")),
            tf.constant(random.integers(NUM_CLASSES, size=setting.batch)),
        )
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

        def step(inputs: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_fn(labels, model(inputs, training=True))
                scaled_loss = self.optimizer.scale_loss(loss)
            variables = model.trainable_variables
            grads = tape.gradient(scaled_loss, [variable.value for variable in variables])
            self.optimizer.apply(grads, variables)
            return loss

        self._step = tf.function(step, autograph=False, jit_compile=setting.jit_compile)

    def seconds(self) -> float:
        """Make one step and return its wall time."""
        start = time.perf_counter()
        self._step(*self._batch).numpy()
        self.num_calls += 1
        return time.perf_counter() - start

    def check_that_nothing_was_skipped(self) -> None:
        """Raise if a step was cheap because it did nothing."""
        num_steps = int(self.optimizer.iterations.numpy())
        if num_steps != self.num_calls:
            raise RuntimeError(f"{num_steps} of {self.num_calls} steps were applied.")


def measure(setting: Setting, num_steps: int) -> dict[str, np.ndarray]:
    """Return the seconds of each optimizer's steps; equal indices are of one round."""
    steps = {name: TrainStep(setting, make) for name, make in OPTIMIZERS.items()}
    times = interleaved({name: step.seconds for name, step in steps.items()}, num_steps)
    for step in steps.values():
        step.check_that_nothing_was_skipped()
    return times


def row(name: str, times: dict[str, np.ndarray]) -> str:
    """Return a line of the table."""
    milliseconds = [f"{quartiles(1000 * times[key], 2):22}" for key in OPTIMIZERS]
    ratios = {key: times[key] / times["none"] for key in ("keras", "ours")}
    keras_adds, ours_adds = (float(np.median(ratio)) - 1 for ratio in ratios.values())
    columns = milliseconds + [f"{quartiles(ratio, 3):22}" for ratio in ratios.values()]
    return f"{name:24}{''.join(columns)}{ours_adds / keras_adds:10.2f}"


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300, help="of each optimizer, per setting")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--quick", action="store_true", help="30 steps of two settings")
    options = parser.parse_args(argv)
    if options.quick:
        options.settings, options.steps = list(QUICK), 30
    keras.config.set_dtype_policy("float32")
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {os.cpu_count()} cores")
    print(f"Train steps, median [quartiles] of {options.steps} interleaved rounds")
    headings = ("none, ms", "keras, ms", "ours, ms", "keras / none", "ours / none")
    print(f"{'setting':24}{''.join(f'{heading:22}' for heading in headings)}ours/keras")
    for name in options.settings:
        print(row(name, measure(SETTINGS[name], options.steps)), flush=True)
    print(
        f"ours/keras: what ours adds over what Keras's adds; the goal is at most {GOAL}, "
        f"or a step {1 + SMALL_GOAL} times as long where Keras's adds under {SMALL_ADDITION:.0%}."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
