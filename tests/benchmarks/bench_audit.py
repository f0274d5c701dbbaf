"""What an audit costs next to plain tracing, and what memory it takes.

    python tests/benchmarks/bench_audit.py [--rounds 5] [--models NAME ...] [--quick]

Time: in one process, round after round, each model's forward pass is traced by
`tf.function(...).get_concrete_function` once with training=False and once with
training=True, and audited in both modes; who goes first alternates. Every plain trace
is of a new function. The first round only warms up and is not counted.

Memory: the peak resident set of a process of its own that builds a model and audits
it once, for batches of 1 and of 4096. One of the models branches in Python on the
values of a tensor, which cannot be traced and falls back to an eager run.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
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

POLICY = "mixed_bfloat16"
GOAL = 1.3
BATCHES = (1, 4096)
_MEGABYTE = 1 << 20


def encoder(num_blocks: int = 12, width: int = 64) -> keras.Model:
    """Return a transformer encoder over embedded ids."""
    ids = keras.Input((64,), dtype="int32")
    hidden = layers.Embedding(1000, width)(ids)
    for _ in range(num_blocks):
        attended = layers.MultiHeadAttention(4, width // 4)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
        expanded = layers.Dense(4 * width, activation="gelu")(hidden)
        expanded = layers.Dropout(0.1)(layers.Dense(width)(expanded))
        hidden = layers.LayerNormalization()(layers.Add()([hidden, expanded]))
    features = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(ids, layers.Dense(10, "softmax", dtype="float32")(features))


def _application(name: str, size: int = 64) -> Callable[[], keras.Model]:
    def build() -> keras.Model:
        make = getattr(keras.applications, name)
        backbone = make(weights=None, include_top=False, pooling="avg", input_shape=(size, size, 3))
        head = layers.Dense(10, activation="softmax", dtype="float32")
        return keras.Model(backbone.inputs, head(backbone.outputs[0]))

    return build


class Branches(keras.Model):
    """Chooses its next layer by looking at the values."""

    def __init__(self, num_steps: int = 8, width: int = 1024):
        super().__init__()
        self.steps = [layers.Dense(width, activation="relu") for _ in range(num_steps)]
        self.shrink = layers.Dense(width)
        self.head = layers.Dense(10, dtype="float32")

    def call(self, inputs):
        hidden = inputs
        for step in self.steps:
            hidden = step(hidden)
            if keras.ops.max(hidden) > 1.0:
                hidden = self.shrink(hidden)
        return self.head(hidden)


def branching() -> keras.Model:
    """Return a built model that no tf.function without autograph can trace."""
    model = Branches()
    model(np.zeros((1, 1024), "float32"))
    return model


MODELS: dict[str, Callable[[], keras.Model]] = {
    "encoder": encoder,
    "ResNet50": _application("ResNet50"),
    "MobileNetV3Small": _application("MobileNetV3Small"),
    "EfficientNetB0": _application("EfficientNetB0"),
    "ConvNeXtTiny": _application("ConvNeXtTiny"),
}
MEMORY_MODELS: dict[str, Callable[[], keras.Model]] = {
    "encoder": encoder,
    "MobileNetV3Small": MODELS["MobileNetV3Small"],
    "branching (eager)": branching,
}


def specs(model: keras.Model, batch: int | None = None) -> Any:
    """Return the TensorSpec of a model's only input."""
    if not getattr(model, "inputs", None):
        return tf.TensorSpec((batch, 1024), tf.float32)
    tensor = model.inputs[0]
    return tf.TensorSpec((batch, *tensor.shape[1:]), tensor.dtype)


def plain_trace(model: keras.Model, training: bool) -> Any:
    """Trace one mode of a model as anyone would."""
    function = tf.function(lambda inputs: model(inputs, training=training), autograph=False)
    return function.get_concrete_function(specs(model)).graph


def plain_traces(model: keras.Model) -> None:
    """Trace both modes."""
    for training in (False, True):
        plain_trace(model, training)


def audit(model: keras.Model, inputs: Any = None) -> Any:
    """Audit both modes, silently."""
    from tf_amp_kit.inspection.audit import audit_layer_dtypes

    return audit_layer_dtypes(model, inputs=inputs, verbose=0)


def seconds(function: Callable[..., Any], *args: Any) -> float:
    """Return the wall time of one call, without the garbage of those before it."""
    gc.collect()
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def num_operations(graph: Any) -> int:
    """Count a graph's operations, those of its functions included."""
    definition = graph.as_graph_def()
    return len(definition.node) + sum(len(f.node_def) for f in definition.library.function)


def quartiles(values: list[float]) -> str:
    """Return the three quartiles as text."""
    low, middle, high = np.percentile(values, (25, 50, 75))
    return f"{middle:7.3f} [{low:.3f}, {high:.3f}]"


def measure_times(names: list[str], rounds: int) -> None:
    """Print the time of audits over the time of plain traces, interleaved."""
    models = {name: MODELS[name]() for name in names}
    plain: dict[str, list[float]] = {name: [] for name in names}
    audits: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name, model in models.items():
            for function in (plain_traces, audit) if turn % 2 else (audit, plain_traces):
                record = plain if function is plain_traces else audits
                record[name].append(seconds(function, model))
    print(f"\nTime under {POLICY}, median [quartiles] of {rounds} interleaved rounds")
    columns = f"{'plain, s':24}{'audit, s':24}{'ratio':24}s/1000 layers"
    print(f"{'model':18}{'ops':>6}{'layers':>7}  {columns}")
    worst = 0.0
    for name, model in models.items():
        before, after = plain[name][1:], audits[name][1:]
        ratios = [a / p for a, p in zip(after, before, strict=True)]
        num_layers = len(audit(model).rows)
        each = 1000 * float(np.median(after)) / num_layers
        worst = max(worst, float(np.median(ratios)))
        print(
            f"{name:18}{num_operations(plain_trace(model, True)):6}{num_layers:7}  "
            f"{quartiles(before):24}{quartiles(after):24}{quartiles(ratios):24}{each:8.2f}"
        )
    print(f"Largest median ratio {worst:.3f}; the goal is at most {GOAL} over 1000 operations.")


def peak_bytes() -> int:
    """Return the peak resident set of this process."""
    # A child's `ru_maxrss` starts at its parent's; the kernel's own mark does not.
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def memory_of_one(name: str, batch: int) -> None:
    """Audit one model once and print the peaks before and after, in bytes."""
    model = MEMORY_MODELS[name]()
    before = peak_bytes()
    audit(model, specs(model, batch))
    print(before, peak_bytes())


def measure_memory() -> None:
    """Print the peak memory of audits, each in a process of its own."""
    print(f"\nPeak resident set under {POLICY}, one process each, MB")
    print(f"{'model':20}{'batch':>6}{'before audit':>14}{'after audit':>14}{'audit adds':>14}")
    for name in MEMORY_MODELS:
        for batch in BATCHES:
            command = [sys.executable, __file__, "--one", name, str(batch)]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            before, after = map(int, result.stdout.split()[-2:])
            numbers = (before, after, after - before)
            columns = "".join(f"{number / _MEGABYTE:14.1f}" for number in numbers)
            print(f"{name:20}{batch:6}{columns}")


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--quick", action="store_true", help="two rounds of one model")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "BATCH"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    keras.config.set_dtype_policy(POLICY)
    if options.one:
        memory_of_one(options.one[0], int(options.one[1]))
        return 0
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {os.cpu_count()} cores")
    if options.quick:
        options.models, options.rounds = ["encoder"], 2
    measure_times(options.models, options.rounds)
    measure_memory()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
