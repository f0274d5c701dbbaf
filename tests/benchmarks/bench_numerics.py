"""What looking at the numbers costs: time and memory next to a plain train step.

    python -m tests.benchmarks.bench_numerics [--rounds 20] [--models NAME ...] [--quick]

`measure_numerics` is timed per batch, once it is traced: a float32 step with every
layer's outputs, their gradients, the weights and their gradients counted, histograms
included. Next to it the same step without counting, traced the same way, and as `fit`
would run it, a `tf.function` of forward pass, loss, gradients and Adam's update.
Rounds are interleaved in one process, and a ratio is that of two runs of one round.

`find_nonfinite` is timed as a whole, tracing included, on a batch with a fault (an
overflow in the middle of the model, in float16) and on a clean one, next to
`tf.debugging.enable_check_numerics` on the same step, which is a `tf.function` that is
traced and run once too. Each of these runs a few times in processes of its own.

Memory is the peak of the resident set over what it was before, of one run, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from tests.benchmarks.bench_pins import IMAGE_SHAPE, NUM_CLASSES, language_model, token_batch
from tests.benchmarks.memory import peak_of
from tests.benchmarks.rounds import interleaved, quartiles
from tf_amp_kit.data import Batch
from tf_amp_kit.inspection.nonfinite.find import find_nonfinite
from tf_amp_kit.inspection.numerics.measure import Measurement
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_graph import trace_step

BATCH = 8
NUM_PROCESSES = 3
# Of one plain train step; of its peak memory; of `enable_check_numerics`.
TIME_GOAL, MEMORY_GOAL, FIND_GOAL = 3.0, 2.0, 1.0


class Overflow(layers.Layer):
    """Squares its inputs twice, which is more than float16 can hold if they are large."""

    def __init__(self, factor: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs: Any) -> Any:
        """Return the inputs, and a term that is 0 or infinite."""
        large = keras.ops.square(keras.ops.square(inputs * 0 + self.factor))
        return inputs + large * 0


def resnet(factor: float = 0.0) -> keras.Model:
    """Return ResNet50 with a layer before its head that overflows for large factors."""
    base = keras.applications.ResNet50(weights=None, input_shape=IMAGE_SHAPE, include_top=False)
    hidden = layers.GlobalAveragePooling2D()(Overflow(factor, name="overflow")(base.output))
    return keras.Model(base.input, layers.Dense(NUM_CLASSES, dtype="float32")(hidden))


def transformer(factor: float = 0.0) -> keras.Model:
    """Return the language model with a layer behind it that overflows for large factors."""
    base = language_model()
    hidden = Overflow(factor, name="overflow")(base.output)
    return keras.Model(base.input, layers.Activation("linear", dtype="float32")(hidden))


def image_batch() -> Batch:
    """Return random images and classes."""
    random = np.random.default_rng(0)
    images = random.random((BATCH, *IMAGE_SHAPE), dtype="float32")
    return Batch(tf.constant(images), tf.constant(random.integers(NUM_CLASSES, size=BATCH)))


def language_batch() -> Batch:
    """Return random tokens, and the tokens to predict."""
    tokens, targets = token_batch(np.random.default_rng(0))
    return Batch(tf.constant(tokens), tf.constant(targets))


MODELS: dict[str, tuple[Callable[..., keras.Model], Callable[[], Batch]]] = {
    "ResNet50": (resnet, image_batch),
    "transformer": (transformer, language_batch),
}
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make(name: str, factor: float = 0.0) -> tuple[keras.Model, Batch]:
    """Build a compiled model and its batch."""
    keras.utils.set_random_seed(0)
    build, make_batch = MODELS[name]
    model = build(factor)
    model.compile(keras.optimizers.Adam(1e-6), LOSS)
    return model, make_batch()


def step_of_fit(model: keras.Model, batch: Batch) -> Callable[[], Any]:
    """Return a train step as `fit` runs it."""
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [one.value for one in variables]), variables)
        return loss

    return lambda: step(batch.x, batch.y).numpy()


def plain_step(model: keras.Model, batch: Batch) -> Callable[[], Any]:
    """Return the step that is measured, without measuring."""
    step = trace_step(model, (batch.x, batch.y), in_float32=True)
    symbolic = step.reader.symbolic
    keys = [step.loss, *(key for key in step.gradients.values() if key is not None)]
    compute = StepRunner(step).function([symbolic[key] for key in keys])
    return lambda: compute(batch, 1.0)[0].numpy()


def measured_step(model: keras.Model, batch: Batch) -> Callable[[], Any]:
    """Return what `measure_numerics` does per batch."""
    measurement = Measurement(model, (batch.x, batch.y), None, "float16", 1.0)
    return lambda: measurement.add(batch)


ALTERNATIVES = {"fit": step_of_fit, "plain": plain_step, "measured": measured_step}


def timed(step: Callable[[], Any]) -> float:
    """Run a step and return its wall time."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def report_times(name: str, num_rounds: int) -> str:
    """Interleave the three kinds of steps of a model."""
    model, batch = make(name)
    steps = {kind: make_step(model, batch) for kind, make_step in ALTERNATIVES.items()}
    times = interleaved(
        {kind: lambda step=step: timed(step) for kind, step in steps.items()}, num_rounds, 3
    )
    lines = [f"  {kind:18}{quartiles(1000 * value, 1)} ms" for kind, value in times.items()]
    for base in ("fit", "plain"):
        ratio = times["measured"] / times[base]
        lines.append(f"  {f'measured / {base}':18}{quartiles(ratio, 3)}")
    return "\n".join(lines)


def memory_of(name: str, kind: str) -> float:
    """Return the peak of one run of a step in MB, of this process."""
    model, batch = make(name)
    step = ALTERNATIVES[kind](model, batch)
    return peak_of(step) / 1e6


def seconds_to_find(name: str, how: str, factor: float) -> float:
    """Return the seconds to look at one batch, tracing included."""
    keras.config.set_dtype_policy("mixed_float16")
    model, batch = make(name, factor)
    if how == "find_nonfinite":
        data = batch.x, batch.y
        # Unscaled: at the scale that training starts from, a random model overflows.
        return timed(lambda: find_nonfinite(model, data, loss_scale=1.0, verbose=0))
    tf.debugging.enable_check_numerics()
    step = step_without_update(model, batch)
    start = time.perf_counter()
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        step()
    return time.perf_counter() - start


def step_without_update(model: keras.Model, batch: Batch) -> Callable[[], Any]:
    """Return forward pass, loss and gradients as a `tf.function` that was never traced."""

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
        return tape.gradient(loss, [one.value for one in model.trainable_variables])

    return lambda: step(batch.x, batch.y)


def in_process(*arguments: str) -> float:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, "--one", json.dumps(arguments)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(printed.splitlines()[-1])


def report_memory(name: str) -> str:
    """Measure the peak memory of each kind of step."""
    peaks = {kind: in_process("memory", name, kind) for kind in ALTERNATIVES}
    lines = [f"  peak of {kind:10}{value:8.0f} MB" for kind, value in peaks.items()]
    for base in ("fit", "plain"):
        lines.append(f"  {f'measured / {base}':18}{peaks['measured'] / peaks[base]:.2f}")
    return "\n".join(lines)


def report_finding(name: str, num_processes: int) -> str:
    """Time `find_nonfinite` and TensorFlow's own check."""
    lines = []
    for batch, factor in (("clean", 0.0), ("faulty", 300.0)):
        seconds = {
            how: np.array(
                [in_process("find", name, how, str(factor)) for _ in range(num_processes)]
            )
            for how in ("find_nonfinite", "check_numerics")
        }
        lines += [f"  {batch:8}{how:16}{quartiles(value, 1)} s" for how, value in seconds.items()]
        ratio = seconds["find_nonfinite"] / seconds["check_numerics"]
        lines.append(f"  {batch:8}{'ratio':16}{quartiles(ratio, 3)}")
    return "\n".join(lines)


def run_one(kind: str, *arguments: str) -> float:
    """Make one measurement in this process."""
    if kind == "memory":
        return memory_of(*arguments)
    name, how, factor = arguments
    return seconds_to_find(name, how, float(factor))


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--quick", action="store_true", help="3 rounds, one process each")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        print(run_one(*json.loads(options.one)))
        return 0
    rounds, processes = (3, 1) if options.quick else (options.rounds, NUM_PROCESSES)
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {os.cpu_count()} cores")
    print(f"Batch {BATCH}; median [quartiles] of {rounds} rounds, {processes} processes")
    for name in options.models:
        print(f"{name}\n{report_times(name, rounds)}", flush=True)
        print(report_memory(name), flush=True)
        print(report_finding(name, processes), flush=True)
    print(
        f"Goals: measured / fit at most {TIME_GOAL} in time and {MEMORY_GOAL} in memory, "
        f"find_nonfinite / check_numerics below {FIND_GOAL}."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
