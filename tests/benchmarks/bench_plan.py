"""Precision plans against brute force, on five nets that were trained a little.

    python -m tests.benchmarks.bench_plan [--nets NAME ...] [--seeds 3] [--formats fp16 bf16]

Brute force runs each unit alone in half precision, and greedily searches pins by running
the four remaining units that are worst alone as the next one. (`--candidates 0` runs all
that remain; on the first CNN and LSTM it found no smaller sets.) The plan's tolerance is
a third, then half of the error with everything in half; both aim at 0.8 of it. For each
net, seed, format and tolerance a line tells:

- rank: Spearman's correlation of the plan's scores with the single errors of brute force;
- joint: the predicted over the measured error with everything in half;
- pins: how many the plan has, against greedy brute force;
- runs: how many choices the plan really ran, against 7 and the number of pins;
- time: the plan's seconds over those of brute force, one at a time and greedy.

The plan's errors are its own; `error` is brute force's for the plan's pins, over the
tolerance. `--no-plan` runs brute force only, `--compiled` runs it in a `tf.function`.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.benchmarks import plan_brute
from tests.benchmarks.plan_nets import NETS, Net

TOLERANCES = {"1/3": 1 / 3, "1/2": 1 / 2}
PROBES = 4
# How many samples both search on, and which share of the tolerance both aim at: a plan
# leaves the rest for other batches.
NUM_SEARCHED, SEARCH_SHARE = 64, 0.8
# Runs that a plan may take besides one for each pin.
FREE_RUNS = 7
GOALS = """goals: rank at least 0.95 on average and 0.90 at worst; joint 0.75 to 1.25; pins at
most greedy's and 1; runs at most 7 and the pins; time at most 0.25 of brute force's"""


@dataclass(frozen=True)
class BruteForce:
    """What brute force found for one net in one format.

    Attributes:
        half: The relative RMS error with everything in half.
        singles: What each unit does alone.
        greedy: The greedy search, by tolerance; empty if it was left out.
    """

    half: float
    singles: dict[str, plan_brute.Single]
    greedy: dict[str, plan_brute.Greedy]

    @property
    def seconds(self) -> float:
        """How long running one unit at a time took."""
        return sum(one.seconds for one in self.singles.values())


@dataclass(frozen=True)
class Row:
    """How one plan compares with brute force; NaN for what is not there to compare."""

    rank: float
    joint: float
    pins: int
    greedy_pins: float
    runs: int
    error: float
    over_single: float
    over_greedy: float

    @property
    def pins_over_greedy(self) -> float:
        """How many pins more than greedy brute force."""
        return self.pins - self.greedy_pins

    @property
    def runs_over_free(self) -> int:
        """How many runs more than the free ones and one for each pin."""
        return self.runs - FREE_RUNS - self.pins

    def __str__(self) -> str:
        return (
            f"rank {self.rank:.3f}  joint {self.joint:.2f}  "
            f"pins {self.pins} (greedy {self.greedy_pins:.0f})  "
            f"runs {self.runs} (of {FREE_RUNS + self.pins})  error {self.error:.2f}  "
            f"time {self.over_single:.2f} of single, {self.over_greedy:.3f} of greedy"
        )


def spearman(one: np.ndarray, two: np.ndarray) -> float:
    """Return Spearman's rank correlation, ties averaged; NaN if one of them is constant.

    >>> float(spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])))
    0.8
    """
    first, second = _ranks(one), _ranks(two)
    first, second = first - first.mean(), second - second.mean()
    norms = np.sqrt(np.square(first).sum() * np.square(second).sum())
    return float((first * second).sum() / norms) if norms else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 0; equal values get the mean of theirs.

    >>> _ranks(np.array([5.0, 1.0, 5.0, float("inf")])).tolist()
    [1.5, 0.0, 1.5, 3.0]
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return (last - (counts - 1) / 2)[places]


def brute_force(net: Net, precision: str, options: argparse.Namespace) -> BruteForce:
    """Run everything that plans are compared with."""
    x = net.data[0][:NUM_SEARCHED]
    twin = amp.convert_model(net.model, precision)
    y32 = plan_brute.outputs(net.model, x, compiled=options.compiled)
    half = plan_brute.error_with_pins(twin, x, y32, (), compiled=options.compiled)
    singles = plan_brute.single_errors(net.model, x, precision, compiled=options.compiled)
    by_error = sorted(singles, key=lambda path: -singles[path].error)
    greedy = {
        name: plan_brute.greedy(
            net.model,
            x,
            precision,
            SEARCH_SHARE * share * half,
            candidates=by_error,
            num_candidates=options.candidates or None,
            max_seconds=options.greedy_seconds,
        )
        for name, share in TOLERANCES.items()
        if options.greedy_seconds and name in options.tolerances
    }
    return BruteForce(half, singles, greedy)


def compare(net: Net, precision: str, brute: BruteForce, tolerance: str) -> Row:
    """Make a plan, and compare it."""
    x, y = net.data
    allowed = TOLERANCES[tolerance] * brute.half
    plan = amp.plan_precision(
        net.model,
        x[:NUM_SEARCHED],
        y[:NUM_SEARCHED],
        validation=(x[NUM_SEARCHED:], y[NUM_SEARCHED:]),
        precision=precision,
        tolerance=allowed,
        probes=PROBES,
        time_steps=False,
        verbose=0,
    )
    seconds = plan.seconds
    scores = {unit.path: unit.score for unit in plan.units}
    _warn_of_other_units(scores, brute)
    common = [path for path in brute.singles if path in scores]
    twin, y32 = amp.convert_model(net.model, precision), plan_brute.outputs(net.model, x)
    greedy = brute.greedy.get(tolerance)
    is_comparable = greedy is not None and greedy.is_complete
    return Row(
        rank=spearman(
            np.array([scores[path] for path in common]),
            np.array([brute.singles[path].error for path in common]),
        )
        if common
        else float("nan"),
        joint=plan.curve[0].predicted / plan.half.output if plan.curve else float("nan"),
        pins=len(plan.pins.paths),
        greedy_pins=len(greedy.pins) if greedy and is_comparable else float("nan"),
        runs=plan.num_validations,
        error=plan_brute.error_with_pins(twin, x, y32, plan.pins.paths) / allowed,
        over_single=seconds / brute.seconds,
        over_greedy=seconds / greedy.seconds if greedy and is_comparable else float("nan"),
    )


def _warn_of_other_units(scores: dict[str, float], brute: BruteForce) -> None:
    others = sorted(set(scores) ^ set(brute.singles)) if scores else []
    if others:
        print(f"    {len(others)} units are only in one of both: {', '.join(others[:5])}")


def described(net: Net, brute: BruteForce) -> str:
    """Return the line about brute force."""
    errors = np.array([one.error for one in brute.singles.values()])
    parts = [
        f"{len(brute.singles)} units, half {brute.half:.2e}",
        f"root of the squares {np.sqrt(np.square(errors).sum()):.2e}",
        f"singles {brute.seconds:.1f} s",
    ]
    for name, one in brute.greedy.items():
        end = "" if one.is_complete else ", stopped"
        parts.append(
            f"greedy {name}: {len(one.pins)} pins, {one.num_runs} runs, {one.seconds:.1f} s{end}"
        )
    return "; ".join(parts)


def summary(rows: list[Row]) -> str:
    """Return the quartiles and the worst of everything, over all plans."""
    columns: dict[str, tuple[list[float], Any]] = {
        "rank": ([row.rank for row in rows], np.min),
        "joint": ([row.joint for row in rows], _farthest_from_1),
        "pins - greedy": ([row.pins_over_greedy for row in rows], np.max),
        "runs - 7 - pins": ([row.runs_over_free for row in rows], np.max),
        "error / tolerance": ([row.error for row in rows], np.max),
        "time / single": ([row.over_single for row in rows], np.max),
        "time / greedy": ([row.over_greedy for row in rows], np.max),
    }
    lines = [f"{'':20}{'mean':>8}{'25 %':>8}{'median':>8}{'75 %':>8}{'worst':>8}{'plans':>8}"]
    for name, (values, worst) in columns.items():
        known = np.array([value for value in values if not np.isnan(value)])
        if len(known):
            low, middle, high = np.percentile(known, (25, 50, 75))
            figures = (known.mean(), low, middle, high, worst(known))
            lines.append(f"{name:20}{''.join(f'{one:8.3f}' for one in figures)}{len(known):8}")
    return "\n".join(lines)


def _farthest_from_1(values: np.ndarray) -> float:
    return float(values[np.argmax(np.abs(np.log(values)))])


def bench_net(name: str, seed: int, options: argparse.Namespace) -> list[Row]:
    """Train a net, and compare its plans in all formats."""
    start = time.perf_counter()
    net = NETS[name](seed)
    losses = net.model.history.history["loss"]
    seconds = time.perf_counter() - start
    print(f"{name}, seed {seed}: trained {seconds:.0f} s, loss {losses[0]:.2f} -> {losses[-1]:.2f}")
    rows = []
    for precision in options.formats:
        brute = brute_force(net, precision, options)
        print(f"  {precision}: {described(net, brute)}", flush=True)
        for tolerance in () if options.no_plan else options.tolerances:
            rows.append(compare(net, precision, brute, tolerance))
            print(f"    {tolerance}: {rows[-1]}", flush=True)
    return rows


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=["fp16", "bf16"])
    help_text = "of the error with everything in half"
    parser.add_argument(
        "--tolerances", nargs="+", choices=TOLERANCES, default=list(TOLERANCES), help=help_text
    )
    parser.add_argument("--no-plan", action="store_true", help="brute force only")
    parser.add_argument("--compiled", action="store_true", help="single runs in a tf.function")
    help_text = "how many units greedy brute force runs for each pin; 0 for all that remain"
    parser.add_argument("--candidates", type=int, default=4, help=help_text)
    help_text = "when to stop a greedy search; 0 leaves it out"
    parser.add_argument("--greedy-seconds", type=float, default=600, help=help_text)
    options = parser.parse_args(argv)
    print(f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {os.cpu_count()} cores")
    rows = [
        row
        for name in options.nets
        for seed in range(options.seeds)
        for row in bench_net(name, seed, options)
    ]
    if rows:
        print(summary(rows), GOALS, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
