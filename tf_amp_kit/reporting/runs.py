"""What the runs of a comparison give over their steps: means, spreads and differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.errors import SelectionError
from tf_amp_kit.tables import some

__all__ = ["RunValues", "evaluated", "lost_step", "skipped_steps", "trained"]

Values = NDArray[np.float64]

# A mean over so many windows shows where a training goes, and not each batch.
_NUM_WINDOWS: Final = 40


@dataclass(frozen=True, eq=False)
class RunValues:
    """One number of every run, at common steps.

    Attributes:
        title: What it is.
        steps: After how many steps.
        by_run: The values of each run by precision and seed; NaN where there are none.
        seeds: The seeds of all precisions.
        reference: The name of the precision that the others are compared with.
        window: Over how many steps means are taken.
    """

    title: str
    steps: Values
    by_run: Mapping[str, Mapping[int, Values]]
    seeds: tuple[int, ...]
    reference: str
    window: int = 1

    def mean(self, name: str) -> Values:
        """Gives the mean over the seeds that all precisions have, as far as runs got."""
        runs = self.by_run[name]
        return self._mean([runs[seed] for seed in self.seeds if seed in runs])

    def difference(self, name: str) -> Values:
        """Gives how much larger it is than in float32 with the same seed, as a mean."""
        runs, references = self.by_run[name], self.by_run[self.reference]
        # Step by step before the mean: one that was skipped must count in neither.
        return self._mean([runs[seed] - references[seed] for seed in runs if seed in references])

    def spread(self) -> Values | None:
        """Gives the standard deviation between the float32 runs; None for fewer than two."""
        runs = [_smoothed(one, self.window) for one in self.by_run[self.reference].values()]
        if len(runs) < 2:
            return None
        variance = np.var(np.array(runs), axis=0, ddof=1)
        # As the mean of few runs, it jumps from step to step by itself.
        return np.sqrt(_smoothed(variance, self.window))

    def _mean(self, runs: Sequence[Values]) -> Values:
        if not runs:
            return np.full(len(self.steps), np.nan)
        with warnings.catch_warnings():
            # NaN where there is nothing is what is asked for.
            warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
            smooth = np.array([_smoothed(one, self.window) for one in runs])
            mean: Values = np.nanmean(smooth, axis=0)
        return mean


def trained(report: ComparisonReport) -> RunValues:
    """Gives the training losses, whose means are smoothed."""
    num_steps = max((len(run.losses) for run in report.runs), default=0)
    window = max(1, num_steps // _NUM_WINDOWS)
    steps = np.arange(1, num_steps + 1, dtype=np.float64)
    by_run = _by_run(report, lambda run: _padded(_finite(run.losses), num_steps))
    mean = f", mean over {window} steps" if window > 1 else ""
    reference = report.results[0].name
    return RunValues(f"Training loss{mean}", steps, by_run, report.seeds, reference, window)


def evaluated(report: ComparisonReport, metric: str) -> RunValues | None:
    """Gives a metric on the validation data; None for the loss if there are no such data.

    Raises:
        SelectionError: If no run has such a metric.
    """
    known = {name: None for run in report.runs for one in run.evaluations for name in one.values}
    if metric not in known:
        if metric == "loss":
            return None
        raise SelectionError(
            "Unknown metric. Expected one of those on the validation data: "
            f"{some(list(known), 9) or 'there are none'}. Received: metric={metric!r}."
        )
    steps = sorted({one.step for run in report.runs for one in run.evaluations})
    by_run = _by_run(report, lambda run: _metric_of(run, metric, steps))
    title = f"Validation {metric.replace('_', ' ')}"
    return RunValues(
        title, np.array(steps, np.float64), by_run, report.seeds, report.results[0].name
    )


def lost_step(run: TrainingRun) -> int | None:
    """Tells after how many steps a run was lost: no finite loss any more, or it ended.

    Example:

    >>> lost_step(TrainingRun("float16", 0, (1.0, float("nan"), float("nan"))))
    1
    >>> lost_step(TrainingRun("float16", 0, (float("nan"), 1.0), skipped_steps=1)) is None
    True
    """
    is_finite = np.isfinite(run.losses)
    num_finite_until = int(np.max(np.nonzero(is_finite)[0], initial=-1)) + 1
    # The last steps of a run may have been skipped, too.
    if not _is_all_skipped(run) and num_finite_until < len(run.losses):
        return num_finite_until
    return len(run.losses) if run.failure else None


def skipped_steps(run: TrainingRun) -> list[int]:
    """Gives the steps, counted from 1, that have no loss though the run went on."""
    is_missing = ~np.isfinite(run.losses)
    end = None if _is_all_skipped(run) else lost_step(run)
    return [int(step) + 1 for step in np.nonzero(is_missing[:end])[0]]


def _is_all_skipped(run: TrainingRun) -> bool:
    num_missing = int(np.count_nonzero(~np.isfinite(run.losses)))
    return run.skipped_steps is not None and num_missing <= run.skipped_steps


def _by_run(
    report: ComparisonReport, values_of: Callable[[TrainingRun], Values]
) -> dict[str, dict[int, Values]]:
    return {
        one.name: {run.seed: values_of(run) for run in report.runs_of(one.name)}
        for one in report.results
    }


def _metric_of(run: TrainingRun, metric: str, steps: Sequence[int]) -> Values:
    found = {one.step: one.values.get(metric, np.nan) for one in run.evaluations}
    return _finite(found.get(step, np.nan) for step in steps)


def _finite(values: Iterable[float]) -> Values:
    array = np.array(list(values), np.float64)
    return np.where(np.isfinite(array), array, np.nan)


def _padded(values: Values, length: int) -> Values:
    return np.concatenate([values, np.full(length - len(values), np.nan)])


def _smoothed(values: Values, window: int) -> Values:
    """Takes the mean of the finite values around each one; none after the last of them."""
    is_known = np.isfinite(values)
    sums, counts = (_moving_sum(one, window) for one in (np.where(is_known, values, 0), is_known))
    known: Any = np.nonzero(is_known)[0]
    end = known[-1] + 1 if len(known) else 0
    has_mean = (counts > 0.5) & (np.arange(len(values)) < end)
    return np.where(has_mean, sums / np.maximum(counts, 1), np.nan)


def _moving_sum(values: NDArray[Any], window: int) -> Values:
    totals = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    places = np.arange(len(values))
    first = np.maximum(places - (window - 1) // 2, 0)
    last = np.minimum(places + window // 2 + 1, len(values))
    sums: Values = totals[last] - totals[first]
    return sums
