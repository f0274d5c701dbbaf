"""Whether a precision trains a model as well as float32 does, by float32's own spread.

float32 runs with several seeds; what its results differ by between seeds is what any
change may cost without meaning anything. A precision is compared with float32 of the same
seeds, from the same weights, on the same batches.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tf_amp_kit.comparison.training.record.parts import (
    BETTER,
    EQUAL,
    UNDECIDED,
    WORSE,
    Difference,
    TrainingRun,
    Verdict,
)
from tf_amp_kit.comparison.training.running.run import INTERRUPTED

__all__ = ["FEWEST_SEEDS", "differences_between", "judge", "measure_of"]

#: Of fewer float32 runs the spread is hardly known.
FEWEST_SEEDS: Final = 3

# Loss scaling alone may take so many steps to find its scale.
_FEWEST_STEPS: Final = 20

# Where the seeds of float32 differ by more than this share of what was learned, a loss of
# as much would go unseen.
_COARSEST: Final = 0.25

# The last tenth of the steps, and the last evaluations, are the end of a run.
_END_SHARE: Final = 0.1
_NUM_LAST_EVALUATIONS: Final = 3

# Quantiles of Student's t distribution: 2.5 % lie above, by degrees of freedom.
# Source: NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2.
_STUDENT_T: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
_NORMAL: Final = 1.96


def student_t(degrees: int) -> float:
    """Returns how many standard errors 95 % of all means are within.

    Args:
        degrees: The degrees of freedom; infinite for 0 of them.

    Example:

    >>> student_t(2), student_t(0)
    (4.303, inf)
    """
    if degrees < 1:
        return math.inf
    return _STUDENT_T[degrees - 1] if degrees <= len(_STUDENT_T) else _NORMAL + 2.4 / degrees


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
    return tuple(
        _difference(name, reference, others, _direction(name, directions)) for name in names
    )


def _direction(name: str, directions: Mapping[str, str | None]) -> str | None:
    """Finds which way is better: `fit` puts the output's name before that of a metric."""
    if name.endswith("loss"):
        return "down"
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
) -> Difference:
    ends = {run.seed: end_value(run, name) for run in reference}
    mean = statistics.fmean(ends.values())
    spread = statistics.stdev(ends.values()) if len(ends) > 1 else math.inf
    value = statistics.fmean(end_value(run, name) for run in others)
    same_seeds = statistics.fmean(ends.get(run.seed, mean) for run in others)
    start = statistics.fmean(start_value(run, name) for run in reference)
    sign = -1.0 if direction == "up" else 1.0
    learned, worsening = sign * (start - mean), sign * (value - same_seeds)
    return Difference(
        measure=name,
        reference=same_seeds,
        spread=spread,
        value=value,
        worsening=worsening,
        bound=student_t(len(ends) - 1) * spread * math.sqrt(2 / len(others)),
        share=worsening / learned if learned > 0 else math.nan,
        is_judged=direction is not None,
        learned=learned,
    )


def end_value(run: TrainingRun, name: str) -> float:
    """Returns what a measure comes to at the end of a run: the mean of the last values."""
    if name == "loss":
        return _mean(run.losses[-_window(run) :])
    last = run.evaluations[-_NUM_LAST_EVALUATIONS:]
    # Those at the start are no end of anything.
    values = [one.values[name.removeprefix("val_")] for one in last if one.step]
    return _mean(values)


def start_value(run: TrainingRun, name: str) -> float:
    """Returns what a measure was before anything was learned."""
    if name == "loss":
        return _mean(run.losses[: max(1, _window(run) // 2)])
    return run.evaluations[0].values[name.removeprefix("val_")]


def _window(run: TrainingRun) -> int:
    return max(1, round(_END_SHARE * len(run.losses)))


def _mean(values: Sequence[float]) -> float:
    # Skipped steps have no loss.
    known = [one for one in values if not math.isnan(one)]
    return statistics.fmean(known) if known else math.nan


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
            f"{num_steps} steps are too few: at least {_FEWEST_STEPS} are needed, for loss scaling "
            "alone may take so many to find its scale."
        )
        return Verdict(UNDECIDED, (reason,), first.share)
    judged = [(one.share, *_outcome(one, tolerance)) for one in differences if one.is_judged]
    worse = [(share, reason) for share, outcome, reason in judged if outcome == WORSE]
    if worse:
        shares, reasons = zip(*worse, strict=True)
        return Verdict(WORSE, tuple(reasons), _largest(shares))
    _, outcome, reason = judged[0]
    return Verdict(outcome, (reason,), first.share)


def _largest(shares: Iterable[float]) -> float:
    return max((one for one in shares if not math.isnan(one)), default=math.nan)


def _outcome(one: Difference, tolerance: float) -> tuple[str, str]:
    """Judges one measure, and says why."""
    if math.isinf(one.bound):
        return UNDECIDED, (
            "What float32 differs by between seeds is not known: fewer than two of its runs are "
            "finished."
        )
    learned = max(one.learned, 0.0)
    accepted, finest = tolerance * learned, _COARSEST * learned
    if one.spread > finest and abs(one.worsening) <= one.bound + abs(one.learned):
        return UNDECIDED, _too_little(one)
    if not abs(one.worsening) <= max(one.bound, accepted):  # NaN among them
        outcome = BETTER if one.worsening < 0 else WORSE
        return outcome, f"{_values(one)}: {outcome} by {_amount(one)}; {_spread(one)}."
    if abs(one.worsening) > max(one.spread, accepted) and one.bound > finest:
        return UNDECIDED, _too_coarse(one)
    return EQUAL, f"{_values(one)}: a difference of {_amount(one)}; {_spread(one)}."


def _values(one: Difference) -> str:
    return f"{one.measure} is {one.value:.4g} where float32 has {one.reference:.4g}"


def _amount(one: Difference) -> str:
    amount = f"{abs(one.worsening):.2g}"
    share = abs(one.share)
    return f"{amount}, {100 * share:.2g} % of what float32 learned" if share < math.inf else amount


def _spread(one: Difference) -> str:
    return (
        f"between seeds float32 itself differs by {one.spread:.2g} (standard deviation), which "
        f"makes up to {one.bound:.2g} for so few"
    )


def _too_little(one: Difference) -> str:
    return (
        f"float32 itself gained {one.learned:.2g} in {one.measure}, and its seeds differ by "
        f"{one.spread:.2g} (standard deviation): too little was learned to lose any of it. Train "
        "more steps."
    )


def _too_coarse(one: Difference) -> str:
    return (
        f"{_values(one)}: a difference of {_amount(one)}, more than the {one.spread:.2g} between "
        f"seeds of float32 (standard deviation), but up to {one.bound:.2g} may be chance with so "
        "few. Compare with more seeds."
    )
