"""A comparison's step times and its cost, next to loops that are written by hand.

    python -m tests.benchmarks.bench_compare [--nets CNN transformer] [--rounds 41]

For each net and precision two tables tell:

- steps: milliseconds of a train step, median and quartiles: by the report's clock; by a
  loop by hand of `train_function` on a batch that is there already, which is the same
  step; and by one of `train_on_batch`, which also reads its batch and its result. All
  three take turns, round after round. The ratios of the report's to both are those of each
  round, so what slows the machine down for a while is in both.
- cost: the seconds of a whole `compare_precisions` over those of the same training runs
  as plain loops of `train_on_batch`: the same seeds, steps and evaluations.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.benchmarks.plan_nets import NETS
from tests.benchmarks.rounds import interleaved, quartiles
from tf_amp_kit.comparison.training.candidates import parse_candidates
from tf_amp_kit.comparison.training.judging import FEWEST_SEEDS
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.step_times import StepClock
from tf_amp_kit.data import Batch

PRECISIONS = ("fp32", "bf16", "fp16")
BATCH_SIZE = 32
NUM_EVALUATIONS = 10
GOAL = "goal: the report's clock within 5 % of train_function by hand, median of the ratios"


class Net:
    """A net of the planner's benchmark that is built anew in any precision."""

    def __init__(self, name: str) -> None:
        self.name = name
        model, self.data, self.loss = NETS[name](0)
        self.config = model.get_config()

    def build(self) -> keras.Model:
        """Build the net in the precision that is switched on."""
        config = _without_dtypes(self.config)
        model = keras.Model.from_config(config)
        model.compile(keras.optimizers.Adam(2e-3), self.loss)
        return model


def _without_dtypes(config: Any) -> Any:
    """Leave out the policies, so that layers take the one that is global."""
    if isinstance(config, dict):
        is_layer = "name" in config
        items = config.items()
        return {
            key: _without_dtypes(value) for key, value in items if not (is_layer and key == "dtype")
        }
    if isinstance(config, list | tuple):
        return type(config)(_without_dtypes(one) for one in config)
    return config


def timed(step: Callable[[], object]) -> Callable[[], float]:
    """Turn a step into one that returns its seconds."""

    def run() -> float:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    return run


def compare_steps(net: Net, num_rounds: int) -> None:
    """Print the step times of one net in all precisions."""
    batch = Batch(*(tf.constant(one[:BATCH_SIZE]) for one in net.data))
    steps: dict[str, Callable[[], float]] = {}
    candidates = parse_candidates(PRECISIONS)
    builder = Builder(net.build, pin=True)
    for candidate in candidates:
        for way in ("report", "by hand", "on batch"):
            with builder.model(candidate, 0, batch) as model:
                steps[f"{candidate.name} {way}"] = timed(_step(way, model, batch))
    times = interleaved(steps, num_rounds)
    print(f"\n{net.name}: milliseconds of a train step, batch of {BATCH_SIZE}, {num_rounds} rounds")
    for candidate in candidates:
        report, hand, on_batch = (
            1000 * times[f"{candidate.name} {way}"] for way in ("report", "by hand", "on batch")
        )
        print(
            f"  {candidate.name:9} report {quartiles(report, 2)}  by hand {quartiles(hand, 2)}  "
            f"train_on_batch {quartiles(on_batch, 2)}  ratios {quartiles(report / hand, 3)}, "
            f"{quartiles(report / on_batch, 3)}"
        )


def _step(way: str, model: Any, batch: Batch) -> Callable[[], object]:
    if way == "report":
        return StepClock(model, batch, jit_compile=False)
    model.jit_compile = False
    if way == "on batch":
        return lambda: model.train_on_batch(batch.x, batch.y)
    model.make_train_function(force=True)

    def by_hand() -> float:
        logs = model.train_function(iter([(batch.x, batch.y)]))
        return float(logs["loss"])

    return by_hand


def compare_cost(net: Net, num_steps: int) -> None:
    """Print what a comparison costs beside the plain loops."""
    x, y = net.data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        amp.compare_precisions(
            net.build, (x, y), (x, y), precisions=PRECISIONS, steps=num_steps,
            time_steps=False, gradient_steps=(), verbose=0,
        )  # fmt: skip
        quality = time.perf_counter() - start
        start = time.perf_counter()
        report = amp.compare_precisions(
            net.build, (x, y), (x, y), precisions=PRECISIONS, steps=num_steps, verbose=0
        )
        whole = time.perf_counter() - start
        start = time.perf_counter()
        seeds = {"float32": range(FEWEST_SEEDS)}
        for candidate in parse_candidates(PRECISIONS):
            for seed in seeds.get(candidate.name, range(1)):
                _plain_run(net, candidate.state.precision, seed, num_steps)
        plain = time.perf_counter() - start
    in_runs = sum(run.seconds for run in report.runs)
    print(
        f"\n{net.name}: {len(report.runs)} runs of {num_steps} steps: plain loops {plain:.1f} s, "
        f"quality alone {quality:.1f} s ({quality / plain:.2f} of them), with gradients and step "
        f"times {whole:.1f} s ({whole / plain:.2f}), of which its runs {in_runs:.1f} s"
    )


def _plain_run(net: Net, precision: str, seed: int, num_steps: int) -> None:
    x, y = net.data
    keras.utils.set_random_seed(seed)
    with amp.amp_scope(precision):
        model = net.build()
        if precision != "float32":
            amp.pin_float32(model)
        points = {num_steps * one // NUM_EVALUATIONS for one in range(NUM_EVALUATIONS + 1)}
        rng = np.random.default_rng(seed)
        for step in range(num_steps):
            if step in points:
                model.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0)
            rows = rng.integers(len(x), size=BATCH_SIZE)
            model.train_on_batch(x[rows], y[rows])
        model.evaluate(x, y, batch_size=BATCH_SIZE, verbose=0)


def main() -> None:
    """Compare steps and cost for each net."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", default=["CNN", "transformer"], choices=NETS)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {GOAL}")
    for name in options.nets:
        net = Net(name)
        compare_steps(net, options.rounds)
        compare_cost(net, options.steps)


if __name__ == "__main__":
    main()
