"""What pins cost: whole train steps in bfloat16, unpinned, with the head, with all.

    python -m tests.benchmarks.bench_pins [--rounds 60] [--models NAME ...] [--quick]

A transformer language model with a vocabulary of 16,000, ResNet50 and, because these
two have nothing sensitive but their heads, DenseNet121 with its average pooling. Forward
pass, loss, gradients and Adam are timed together, on one constant batch.

Single train steps are timed, round after round in one process, each round one step of
each alternative in another order. A ratio is that of two steps of one round, so a
machine that slows down for a while slows down both.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

import tf_amp_kit
from tests.benchmarks.rounds import interleaved, quartiles

VOCABULARY, LENGTH, WIDTH, NUM_BLOCKS = 16_000, 64, 256, 4
IMAGE_SHAPE, NUM_CLASSES = (96, 96, 3), 1000
BATCH = 8
# What pins other than the head may cost, of the step with the head pinned.
GOAL = 0.03


def language_model() -> keras.Model:
    """Return a decoder of transformer blocks, with logits for each position."""
    tokens = keras.Input((LENGTH,), dtype="int32")
    hidden = layers.Embedding(VOCABULARY, WIDTH)(tokens)
    for _ in range(NUM_BLOCKS):
        normed = layers.LayerNormalization()(hidden)
        attention = layers.MultiHeadAttention(4, WIDTH // 4)
        hidden = layers.Add()([hidden, attention(normed, normed, use_causal_mask=True)])
        normed = layers.LayerNormalization()(hidden)
        inner = layers.Dense(4 * WIDTH, activation="gelu")(normed)
        hidden = layers.Add()([hidden, layers.Dense(WIDTH)(inner)])
    return keras.Model(tokens, layers.Dense(VOCABULARY, name="head")(hidden))


def application(name: str) -> Callable[[], keras.Model]:
    """Return a builder of an image classifier of Keras's."""
    return lambda: getattr(keras.applications, name)(weights=None, input_shape=IMAGE_SHAPE)


def token_batch(random: np.random.Generator) -> tuple[Any, Any]:
    """Return random tokens, and the tokens to predict."""
    shape = (BATCH, LENGTH)
    return random.integers(VOCABULARY, size=shape), random.integers(VOCABULARY, size=shape)


def image_batch(random: np.random.Generator) -> tuple[Any, Any]:
    """Return random images and classes."""
    images = random.random((BATCH, *IMAGE_SHAPE), dtype="float32")
    return images, random.integers(NUM_CLASSES, size=BATCH)


MODELS = {
    "language model": (language_model, token_batch),
    "ResNet50": (application("ResNet50"), image_batch),
    "DenseNet121": (application("DenseNet121"), image_batch),
}
PINS: dict[str, Callable[[keras.Model], Any]] = {
    "no pins": lambda model: None,
    "the head": lambda model: tf_amp_kit.pin_float32(model, sensitive=False),
    "all": tf_amp_kit.pin_float32,
}


class TrainStep:
    """The train step of one model on a batch that stays the same."""

    def __init__(self, name: str, pin: Callable[[keras.Model], Any]) -> None:
        build, make_batch = MODELS[name]
        keras.utils.set_random_seed(0)
        self.model = build()
        pins = pin(self.model)
        self.paths = pins.paths if pins is not None else ()
        inputs, labels = make_batch(np.random.default_rng(0))
        self._batch = tf.constant(inputs), tf.constant(labels)
        is_logits = self.model.layers[-1].name == "head"
        loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=is_logits)
        optimizer = keras.optimizers.Adam(1e-5)
        optimizer.build(self.model.trainable_variables)

        def step(inputs: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_fn(labels, self.model(inputs, training=True))
            variables = self.model.trainable_variables
            optimizer.apply(tape.gradient(loss, [one.value for one in variables]), variables)
            return loss

        self._step = tf.function(step, autograph=False)

    def seconds(self) -> float:
        """Make one step and return its wall time."""
        start = time.perf_counter()
        loss = self._step(*self._batch).numpy()
        elapsed = time.perf_counter() - start
        if not np.isfinite(loss):
            raise RuntimeError(f"The loss is {loss}.")
        return elapsed


def report(name: str, num_rounds: int) -> str:
    """Measure a model, and return the lines about it."""
    steps = {pins: TrainStep(name, pin) for pins, pin in PINS.items()}
    times = interleaved({pins: step.seconds for pins, step in steps.items()}, num_rounds, 3)
    others = [path for path in steps["all"].paths if path not in steps["the head"].paths]
    ratios = {
        "the head / no pins": times["the head"] / times["no pins"],
        "all / no pins": times["all"] / times["no pins"],
        "all / the head": times["all"] / times["the head"],
    }
    lines = [
        f"{name}: head {', '.join(steps['the head'].paths)}; others {', '.join(others) or '-'}"
    ]
    lines += [f"  {key:20}{quartiles(1000 * value, 1)} ms" for key, value in times.items()]
    lines += [f"  {key:20}{quartiles(value, 3)}" for key, value in ratios.items()]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--quick", action="store_true", help="6 rounds of the first two")
    options = parser.parse_args(argv)
    if options.quick:
        options.models, options.rounds = list(MODELS)[:2], 6
    keras.config.set_dtype_policy("mixed_bfloat16")
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {os.cpu_count()} cores")
    print(f"Train steps, median [quartiles] of {options.rounds} interleaved rounds, batch {BATCH}")
    for name in options.models:
        print(report(name, options.rounds), flush=True)
    print(f"all / the head: what pins other than the head cost; the goal is at most {1 + GOAL}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
