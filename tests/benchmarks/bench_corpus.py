"""What an audit costs next to plain tracing, on models that other people wrote.

    pip install -e ".[corpus]"
    python -m tests.benchmarks.bench_corpus [NAME ...] [--rounds 3] [--policy mixed_bfloat16]

Each model's forward pass is traced by `tf.function(...).get_concrete_function` with
training=False and with training=True, and audited in both modes; the two take turns, in
one process. The first round only warms up. Without names, all architectures of the corpus
are traced once, and those that take more than a second are measured.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from tests.benchmarks.bench_audit import audit, peak_bytes, quartiles, seconds
from tests.corpus.registry import architectures

MEDIAN_GOAL, WORST_GOAL = 1.3, 2.0
WORTH_MEASURING_SECONDS = 1.0
_MEGABYTE = 1 << 20


def plain_traces(model: keras.Model, batch: Any) -> None:
    """Trace both modes as anyone would, each by a new function."""
    for training in (False, True):
        function = tf.function(
            lambda inputs, training=training: model(inputs, training=training), autograph=False
        )
        function.get_concrete_function(tf.nest.map_structure(_spec, batch))


def _spec(value: Any) -> tf.TensorSpec:
    return tf.TensorSpec((None, *value.shape[1:]), value.dtype)


def measure(name: str, rounds: int, *, is_chosen: bool) -> float | None:
    """Print one model's line, and return its ratio; None for what is too quick, or fails."""
    architecture = architectures()[name]
    keras.utils.clear_session()
    batch = tf.nest.map_structure(tf.convert_to_tensor, architecture.batch())
    try:
        model = architecture.build()
        model(batch)
        first = seconds(plain_traces, model, batch)
    except Exception as error:  # of the package, in half precision or in a graph
        print(f"{name:48} {type(error).__name__}")
        return None
    if first < WORTH_MEASURING_SECONDS and not is_chosen:
        return None
    plain: list[float] = []
    audits: list[float] = []
    for turn in range(rounds + 1):
        for function in (plain_traces, audit) if turn % 2 else (audit, plain_traces):
            record = plain if function is plain_traces else audits
            record.append(seconds(function, model, batch))
    ratios = [after / before for after, before in zip(audits[1:], plain[1:], strict=True)]
    print(f"{name:48} {quartiles(plain[1:]):24}{quartiles(audits[1:]):24}{quartiles(ratios)}")
    return float(np.median(ratios))


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="architectures; all if none are given")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--policy", default="mixed_bfloat16")
    options = parser.parse_args(argv)
    keras.config.set_dtype_policy(options.policy)
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {os.cpu_count()} cores")
    print(f"{'architecture':48} {'plain, s':24}{'audit, s':24}ratio, median [quartiles]")
    names = options.names or list(architectures())
    found = [
        ratio
        for name in names
        if (ratio := measure(name, options.rounds, is_chosen=bool(options.names))) is not None
    ]
    if found:
        print(
            f"{len(found)} models: median ratio {np.median(found):.2f} (goal {MEDIAN_GOAL}), "
            f"largest {max(found):.2f} (goal {WORST_GOAL}); "
            f"peak of the process {peak_bytes() / _MEGABYTE:.0f} MB"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
