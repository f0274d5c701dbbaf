"""The tables of a comparison of precisions: quality, runs, gradients, speed and memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tf_amp_kit.comparison.training.record.parts import (
    Difference,
    GradientPoint,
    PrecisionResult,
    StepSpeed,
    TrainingRun,
)
from tf_amp_kit.comparison.training.record.table import NOTHING, Table
from tf_amp_kit.comparison.words import counted, milliseconds, number, size
from tf_amp_kit.tables import percent

if TYPE_CHECKING:
    from tf_amp_kit.comparison.training.record.report import ComparisonReport

__all__ = ["share", "tables"]


def tables(report: ComparisonReport) -> Iterator[Table]:
    """Gives the tables of a report, those that have rows."""
    for lay_out in (_quality, _runs, _gradients, _speed, _memory):
        table = lay_out(report)
        if table.rows:
            yield table


def share(value: float) -> str:
    """Writes a share of what float32 learned in percent, with its sign.

    Example:

    >>> share(0.0123), share(-0.5), share(-1e-6), share(math.inf), share(math.nan)
    ('1.2 %', '-50.0 %', '<0.05 %', 'not finite', '-')
    """
    if math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return number(value)
    # What is too small to be told has no sign.
    text = percent(abs(value))
    return text if value >= 0 or text.startswith("<") else f"-{text}"


def _quality(report: ComparisonReport) -> Table:
    columns = ("Measure", "Precision", "Value", "Spread", "Worsening", "Bound", "Share", "Judged")
    steps, seeds = counted(report.num_steps, "step"), counted(len(report.seeds), "seed")
    mean = f", mean over {seeds}" if len(report.seeds) > 1 else ""
    title = (
        f"Quality at the end of {steps}{mean}. Bound: what float32 itself differs by between "
        "seeds; share: the worsening over what float32 learned"
    )
    return Table(title, columns, tuple(_quality_rows(report)), num_names=2)


def _quality_rows(report: ComparisonReport) -> Iterator[Sequence[str]]:
    every = [(one.name, each) for one in report.results[1:] for each in one.differences]
    tells_judged = not all(each.is_judged for _, each in every)
    for measure in dict.fromkeys(each.measure for _, each in every):
        group = [(name, each) for name, each in every if each.measure == measure]
        first = group[0][1]
        values = number(first.reference, 4), _known(first.spread)
        yield measure, report.results[0].name, *values, *[NOTHING] * 4
        for name, each in group:
            judged = ("yes" if each.is_judged else "no") if tells_judged else NOTHING
            yield "", name, *_difference_cells(each), judged


def _difference_cells(one: Difference) -> Sequence[str]:
    # Without the sign of a zero.
    worsening, bound = number(one.worsening + 0.0, 2), _known(one.bound)
    return number(one.value, 4), NOTHING, worsening, bound, share(one.share)


def _known(spread: float) -> str:
    # One run tells nothing of how much runs differ.
    return number(spread, 2) if math.isfinite(spread) else "unknown"


def _runs(report: ComparisonReport) -> Table:
    columns = ("Precision", "Runs", "Ended early", "Skipped", "Loss scale", "Apart", "Of the way")
    title = (
        "The runs. Skipped: steps; apart: the weights at the end from those of float32, over "
        "their norm; of the way: the same over the way that float32 went"
    )
    groups = [(one.name, report.runs_of(one.name)) for one in report.results]
    every = [run for _, runs in groups for run in runs]
    if all(_is_plain(run) for run in every):
        return Table(title, columns, ())
    is_scaled = any(run.loss_scale != 1 or run.skipped_steps for run in every)
    rows = (_run_cells(name, runs, is_scaled=is_scaled) for name, runs in groups if runs)
    return Table(title, columns, tuple(rows))


def _is_plain(run: TrainingRun) -> bool:
    return not (run.failure or run.drift or run.skipped_steps) and run.loss_scale == 1


def _run_cells(name: str, runs: Sequence[TrainingRun], *, is_scaled: bool) -> Sequence[str]:
    num_failed = sum(bool(run.failure) for run in runs)
    skipped = [float(run.skipped_steps) for run in runs if run.skipped_steps is not None]
    drifts = [run.drift[-1] for run in runs if run.drift]
    return (
        name,
        f"{len(runs)}",
        f"{num_failed}" if num_failed else NOTHING,
        _span(skipped, "{:.0f}".format) if is_scaled else NOTHING,
        _span([run.loss_scale for run in runs], "{:g}".format) if is_scaled else NOTHING,
        _span([one.relative for one in drifts], lambda value: number(value, 2)),
        _span([one.of_the_way for one in drifts], share),
    )


def _span(values: Sequence[float], write: Callable[[float], str]) -> str:
    """Writes the least and the largest of some numbers, once if they look the same."""
    if not values:
        return NOTHING
    # NaN has no place in an order.
    known = [one for one in values if not math.isnan(one)] or list(values[:1])
    low, high = write(min(known)), write(max(known))
    return low if low == high else f"{low} to {high}"


def _gradients(report: ComparisonReport) -> Table:
    columns = ("Precision", "Step", "Cosine", "Relative error", "Vanished", "Not finite")
    points = [(one.name, point) for one in report.results for point in one.gradients]
    rows = tuple(_gradient_cells(name, point) for name, point in points)
    return Table("Weight gradients of one batch, against float32", columns, rows)


def _gradient_cells(name: str, point: GradientPoint) -> Sequence[str]:
    whole = point.comparison.whole
    return (
        name,
        f"{point.step}",
        # What matters is how far it is from 1.
        number(whole.cosine, 6),
        number(whole.relative_error, 2),
        percent(whole.vanished_fraction),
        f"{whole.num_nonfinite}" if whole.num_nonfinite else NOTHING,
    )


def _speed(report: ComparisonReport) -> Table:
    columns = (
        "Precision",
        "jit_compile",
        "ms per step",
        "Quartiles",
        "Compile s",
        "Examples/s",
        "Speed",
    )
    timed = list(_timed(report))
    with_jit = any(is_jit for _, is_jit, _ in timed)
    medians = [(name, speed.seconds.median) for name, _, speed in timed if speed.seconds]
    base = next((median for name, median in medians if name == report.results[0].name), None)
    jit = "" if not with_jit or base is None else _base_words(report)
    rows = tuple(
        (name, _yes(is_jit) if with_jit else NOTHING, *_speed_cells(speed, base))
        for name, is_jit, speed in timed
    )
    notes = tuple(
        f"{name}{(' with' if is_jit else ' without') + ' jit_compile' if with_jit else ''} has no "
        f"times: {speed.failure.rstrip('.')}."
        for name, is_jit, speed in timed
        if speed.failure
    )
    title = f"Time of a whole train step, median. Speed: times that of float32{jit}"
    return Table(title, columns, rows, num_names=2, notes=notes)


def _timed(report: ComparisonReport) -> Iterator[tuple[str, bool, StepSpeed]]:
    for one in report.results:
        for is_jit, speed in ((False, one.speed), (True, one.jit_speed)):
            if speed is not None:
                yield one.name, is_jit, speed


def _base_words(report: ComparisonReport) -> str:
    speed = report.results[0].speed
    return f" {'without' if speed and speed.seconds else 'with'} jit_compile"


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _speed_cells(speed: StepSpeed, base: float | None) -> Sequence[str]:
    times = speed.seconds
    if times is None:
        return (NOTHING,) * 5
    seconds, rate = speed.compile_seconds, speed.examples_per_second
    return (
        milliseconds(times.median),
        f"{milliseconds(times.low)} to {milliseconds(times.high)}",
        number(seconds, 2) if seconds < 10 else f"{seconds:.0f}",
        number(rate) if rate < 100 else f"{rate:.0f}",
        NOTHING if base is None else f"{base / times.median:.2f}",
    )


def _memory(report: ComparisonReport) -> Table:
    columns = ("Precision", "Estimated", "Ratio", "Measured", "Ratio", "Largest batch")
    rows = tuple(_memory_cells(one, report.results[0]) for one in report.results)
    told = tuple(row for row in rows if any(cell != NOTHING for cell in row[1:]))
    title = "Largest memory of training. Ratio: to float32; largest batch: by the estimate"
    return Table(title, columns, told)


def _memory_cells(one: PrecisionResult, base: PrecisionResult) -> Sequence[str]:
    memory, reference = one.memory, base.memory
    largest = memory.largest_batch_size
    return (
        one.name,
        size(memory.estimated_bytes),
        _ratio(memory.estimated_bytes, reference.estimated_bytes),
        size(memory.measured_bytes),
        _ratio(memory.measured_bytes, reference.measured_bytes),
        NOTHING if largest is None else f"{largest}",
    )


def _ratio(one: int | None, base: int | None) -> str:
    return f"{one / base:.2f}" if one is not None and base else NOTHING
