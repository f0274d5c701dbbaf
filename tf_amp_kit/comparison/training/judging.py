"""Whether a precision trains a model as well as float32 does, by float32's own spread.

float32 runs with several seeds; what its results differ by between seeds is what any
change may cost without meaning anything. A precision is compared with float32 of the same
seeds, from the same weights, on the same batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from tf_amp_kit.comparison.training.outcomes import outcome_of
from tf_amp_kit.comparison.training.record.parts import (
    UNDECIDED,
    WORSE,
    Difference,
    TrainingRun,
    Verdict,
)
from tf_amp_kit.comparison.training.running.run import INTERRUPTED
from tf_amp_kit.comparison.training.student import student_t
from tf_amp_kit.comparison.words import counted

__all__ = ["FEWEST_SEEDS", "differences_between", "judge", "measure_of"]

#: Of fewer float32 runs the spread is hardly known.
FEWEST_SEEDS: Final = 3

# Loss scaling alone may take so many steps to find its scale.
_FEWEST_STEPS: Final = 20

# A run without a difference is called worse, or better, once in so many times.
_ERROR_RATE: Final = 0.05

# The last tenth of the steps, and the last evaluations, are the end of a run.
_END_SHARE: Final = 0.1
_NUM_LAST_EVALUATIONS: Final = 3


def measure_of(runs: Sequence[TrainingRun]) -> str:
    """Returns what the verdicts are about: the loss on the validation data, if there are any."""
    return "val_loss" if any(run.evaluations for run in runs) else "loss"


def differences_between(
    reference: Sequence[TrainingRun],
    others: Sequence[TrainingRun],
    directions: Mapping[str, str | None],
) -> tuple[Difference, ...]:
    """Compares runs with those of float32, in each measure of quality.

    Args:
        reference: The float32 runs, of different seeds, all finished.
        others: The runs of one precision, finished. Each is compared with float32 of the
            same seed; with the mean if there is none.
        directions: By the name of a metric, `"up"` or `"down"` for what is better.

    Returns:
        One `Difference` per measure, the one that decides first.
    """
    if not reference or not others:
        return ()
    names = ["loss"]
    if measure_of(reference) != "loss":
        names = [f"val_{name}" for name in reference[0].evaluations[-1].values]
        names.sort(key=lambda name: name != "val_loss")
    ways = {name: _direction(name, directions) for name in names}
    judged = [name for name, way in ways.items() if way and _is_known(reference, name)]
    # The more measures, the more often one of them differs by chance.
    rate = _ERROR_RATE / max(1, len(judged))
    return tuple(
        _difference(name, reference, others, way, rate=rate, is_judged=name in judged)
        for name, way in ways.items()
    )


def _is_known(reference: Sequence[TrainingRun], name: str) -> bool:
    return all(math.isfinite(end_value(run, name)) for run in reference)


def _direction(name: str, directions: Mapping[str, str | None]) -> str | None:
    """Finds which way is better: `fit` puts the output's name before that of a metric."""
    if name in ("loss", "val_loss"):
        return "down"
    if name.endswith("_loss"):
        return None  # a part of the loss, which is judged as a whole
    plain = name.removeprefix("val_")
    return next(
        (way for known, way in directions.items() if plain == known or plain.endswith(f"_{known}")),
        None,
    )


def _difference(
    name: str,
    reference: Sequence[TrainingRun],
    others: Sequence[TrainingRun],
    direction: str | None,
    *,
    rate: float,
    is_judged: bool,
) -> Difference:
    ends = {run.seed: end_value(run, name) for run in reference}
    mean = _mean(ends.values())
    value, same_seeds = (
        _mean(values)
        for values in (
            [end_value(run, name) for run in others],
            [ends.get(run.seed, mean) for run in others],
        )
    )
    sign = -1.0 if direction == "up" else 1.0
    learned, late = (
        sign * (_mean([value_at(run, name) for run in reference]) - mean)
        for value_at in (start_value, early_value)
    )
    spread = _spread_between(ends.values(), [_last_values(run, name) for run in reference])
    worsening = sign * (value - same_seeds)
    return Difference(
        measure=name,
        reference=same_seeds,
        spread=spread,
        value=value,
        worsening=worsening,
        bound=student_t(len(ends) - 1, rate) * spread * math.sqrt(2 / len(others)),
        share=worsening / learned if learned > 0 else math.nan,
        is_judged=is_judged,
        learned=learned,
        learned_late=late,
    )


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _spread_between(ends: Iterable[float], last_values: Iterable[Sequence[float]]) -> float:
    """Returns the standard deviation between seeds.

    Of few seeds it may come out small by chance; it is not less than the standard error
    that each end has from its own last values.
    """
    ends = list(ends)
    if len(ends) < 2:
        return math.inf
    errors = [float(np.var(one, ddof=1)) / len(one) for one in last_values if len(one) > 1]
    return max(float(np.std(ends, ddof=1)), math.sqrt(_mean(errors or [0.0])))


def end_value(run: TrainingRun, name: str) -> float:
    """Returns what a measure comes to at the end of a run: the mean of the last values.

    NaN if there are none: skipped steps have no loss.
    """
    values = _last_values(run, name)
    return _mean(values) if values else math.nan


def _last_values(run: TrainingRun, name: str) -> list[float]:
    if name == "loss":
        return [one for one in run.losses[-_window(run) :] if not math.isnan(one)]
    last = run.evaluations[-_NUM_LAST_EVALUATIONS:]
    # Those at the start are no end of anything.
    return [one.values[name.removeprefix("val_")] for one in last if one.step]


def start_value(run: TrainingRun, name: str) -> float:
    """Returns what a measure was before anything was learned."""
    if name == "loss":
        return _mean(run.losses[: max(1, _window(run) // 2)])
    return run.evaluations[0].values[name.removeprefix("val_")]


def early_value(run: TrainingRun, name: str) -> float:
    """Returns what a measure was after the first tenth of a run.

    The first steps often do no more than to find the size of the targets.
    """
    if name == "loss":
        return run.losses[min(_window(run), len(run.losses) - 1)]
    return run.evaluations[min(1, len(run.evaluations) - 1)].values[name.removeprefix("val_")]


def _window(run: TrainingRun) -> int:
    return max(1, round(_END_SHARE * len(run.losses)))


def judge(
    runs: Sequence[TrainingRun],
    differences: Sequence[Difference],
    *,
    num_steps: int,
    tolerance: float,
) -> Verdict:
    """Judges one precision.

    Args:
        runs: All its runs, failed ones too.
        differences: Those of its finished runs, the one that decides first.
        num_steps: How many steps a run has.
        tolerance: What is accepted in any case, as a share of what float32 learned.

    Returns:
        A `Verdict`.
    """
    failed = [run for run in runs if run.failure and run.failure != INTERRUPTED]
    if failed:
        reasons = tuple(f"With seed {run.seed}: {run.failure}." for run in failed)
        return Verdict(WORSE, reasons, math.inf)
    if not differences:
        return Verdict(UNDECIDED, ("No run of it is finished.",), math.nan)
    first = differences[0]
    if num_steps < _FEWEST_STEPS:
        reason = (
            f"{counted(num_steps, 'step')} {'is' if num_steps == 1 else 'are'} too few. At least "
            f"{_FEWEST_STEPS} are needed: loss scaling alone may take so many to find its scale."
        )
        return Verdict(UNDECIDED, (reason,), first.share)
    judged = [(one, *outcome_of(one, tolerance)) for one in differences if one.is_judged]
    if not judged:
        reason = f"{first.measure} is not finite in float32: there is nothing to judge by."
        return Verdict(UNDECIDED, (reason,), first.share)
    worse = [(one.share, reason) for one, outcome, reason in judged if outcome == WORSE]
    open_ones = [
        (one.share, reason)
        for one, outcome, reason in judged
        # A metric beside the loss counts only if something may have been lost in it.
        if outcome == UNDECIDED and (one is judged[0][0] or one.worsening > one.spread)
    ]
    for outcome, found in ((WORSE, worse), (UNDECIDED, open_ones)):
        if found:
            shares, reasons = zip(*found, strict=True)
            return Verdict(outcome, tuple(reasons), _largest(shares))
    _, outcome, reason = judged[0]
    return Verdict(outcome, (reason,), first.share)


def _largest(shares: Iterable[float]) -> float:
    return max((one for one in shares if not math.isnan(one)), default=math.nan)
