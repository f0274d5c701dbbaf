"""What half precision costs and brings, on four nets and real data: the study that ships.

    python -m tests.benchmarks.study [--nets NAME ...] [--seeds 3] [--steps N]
        [--output notebooks/study] [--runs FOLDER] [--in-process]

Each net is trained in float32, bfloat16 and float16 by `compare_precisions`, each run in a
process of its own, and its report is saved as NAME.json in the output folder: it names the
machine, and its last note the data. Reports in that folder of nets that were not asked for
stay as they are, and are in the table that is printed at the end. `--runs` keeps runs, so
that the same command continues after an interruption. Without `--output` nothing is written.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import tf_amp_kit as amp
from tests.benchmarks.study_nets import STUDIES, Samples
from tf_amp_kit.comparison.training.record.parts import PrecisionResult, StepSpeed

# Enough to draw a curve, and a third of the file.
LOSS_DIGITS = 5
COLUMNS = (
    *("net", "precision", "val loss", "metric", "worse by", "bound", "verdict"),
    *("step ms", "with jit", "measured MB", "estimated MB"),
)


def compared(name: str, options: argparse.Namespace) -> amp.ComparisonReport:
    """Compare the precisions on one net."""
    study = STUDIES[name]
    train, validation = study.data()
    steps = options.steps or study.steps
    report = amp.compare_precisions(
        study.build,
        train,
        validation,
        precisions=("fp32", "bf16", "fp16"),
        steps=steps,
        seeds=options.seeds,
        batch_size=study.batch_size,
        # Gradients at the end alone: they are most of the file.
        gradient_steps=(steps,),
        isolate=not options.in_process,
        resume=options.runs and Path(options.runs) / name,
    )
    note = f"Data: {study.source}. Digest {digest(train, validation)}."
    return dataclasses.replace(shortened(report), notes=(*report.notes, note))


def digest(*samples: Samples) -> str:
    """Return a short name of data, by which two machines can tell that theirs are the same."""
    content = hashlib.sha256()
    for values in (values for pair in samples for values in pair):
        content.update(np.ascontiguousarray(values))
    return content.hexdigest()[:12]


def shortened(report: amp.ComparisonReport) -> amp.ComparisonReport:
    """Return a report with losses of a few digits."""
    runs = tuple(
        dataclasses.replace(
            run, losses=tuple(float(f"{one:.{LOSS_DIGITS}g}") for one in run.losses)
        )
        for run in report.runs
    )
    return dataclasses.replace(report, runs=runs)


def table(reports: dict[str, amp.ComparisonReport]) -> str:
    """Return the table of the study, in Markdown: one line for each net and precision.

    Worse by, and bound: of the validation loss, in percent of what float32 learned.
    """
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    for name, report in reports.items():
        lines += [[name, *_cells(report, one, STUDIES[name].metric)] for one in report.results]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(report: amp.ComparisonReport, result: PrecisionResult, metric: str) -> list[str]:
    return [
        result.name,
        _value(report, result, "val_loss"),
        _value(report, result, f"val_{metric}"),
        *_judgement(result),
        _milliseconds(result.speed),
        _milliseconds(result.jit_speed),
        _megabytes(result.memory.measured_bytes),
        _megabytes(result.memory.estimated_bytes),
    ]


def _value(report: amp.ComparisonReport, result: PrecisionResult, measure: str) -> str:
    """Return what a measure came to; for float32, what the others were compared with."""
    is_float32 = result.verdict is None
    compared_with = report.results[1:] if is_float32 else [result]
    found = [
        f"{one.reference if is_float32 else one.value:.4f}"
        for each in compared_with
        for one in each.differences
        if one.measure == measure
    ]
    return found[0] if found else "-"


def _judgement(result: PrecisionResult) -> list[str]:
    """Return by how much it is worse, what float32 differs by itself, and the verdict."""
    if result.verdict is None:
        return ["-", "-", "-"]
    losses = [one for one in result.differences if one.measure == "val_loss"]
    shares = [f"{one.share:+.2%}" for one in losses] or ["-"]
    bounds = [f"{one.bound / one.learned:.2%}" for one in losses] or ["-"]
    return [shares[0], bounds[0], result.verdict.outcome]


def _milliseconds(speed: StepSpeed | None) -> str:
    return "-" if speed is None or speed.seconds is None else f"{speed.seconds.median * 1e3:.1f}"


def _megabytes(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else f"{num_bytes / 1e6:.0f}"


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, compare, and write and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="other than each net's own")
    parser.add_argument("--output", type=Path, help="the folder to write reports to")
    parser.add_argument("--runs", help="a folder that keeps runs, to continue")
    help_text = "all runs in this process: faster, but without measured memory"
    parser.add_argument("--in-process", action="store_true", help=help_text)
    options = parser.parse_args(argv)
    reports = {}
    for name in options.nets:
        reports[name] = compared(name, options)
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            reports[name].save(options.output / f"{name}.json")
    print(table({**_saved(options.output), **reports}))
    return 0


def _saved(folder: Path | None) -> dict[str, amp.ComparisonReport]:
    paths = {name: folder / f"{name}.json" for name in STUDIES} if folder else {}
    return {name: amp.ComparisonReport.load(path) for name, path in paths.items() if path.exists()}


if __name__ == "__main__":
    raise SystemExit(main())
