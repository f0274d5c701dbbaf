"""What a comparison of precisions says in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tf_amp_kit.comparison.training.record.parts import PrecisionResult
from tf_amp_kit.comparison.words import counted, listed
from tf_amp_kit.tables import percent

if TYPE_CHECKING:
    from tf_amp_kit.comparison.training.record.report import ComparisonReport

__all__ = ["circumstances", "recommendation", "verdicts"]

_JIT: dict[bool | None, str] = {
    True: " with jit_compile",
    False: " without jit_compile",
    None: "",
}


def recommendation(report: ComparisonReport) -> Iterator[str]:
    """Says what to train with, and why."""
    chosen = report.recommendation
    name = "stay in float32" if chosen.name == "float32" else chosen.name
    yield f"Recommended for {report.model_name!r}: {name}{_JIT[chosen.jit_compile]}."
    yield from chosen.reasons


def verdicts(report: ComparisonReport) -> Iterator[str]:
    """Says of each precision whether it trains as well as float32."""
    for one in report.results:
        if one.verdict is not None:
            reasons = " ".join(one.verdict.reasons)
            yield f"{one.name}{_pinned(one)}: {one.verdict.outcome}. {reasons}".rstrip()


def _pinned(one: PrecisionResult) -> str:
    return f", {counted(one.num_pins, 'layer')} in float32" if one.num_pins else ""


def circumstances(report: ComparisonReport) -> Iterator[str]:
    """Says on what the report was made, and what that took."""
    yield from _failures(report)
    yield from _repeats(report)
    seeds = f"seed{'' if len(report.seeds) == 1 else 's'} {listed(report.seeds)}"
    own = {run.seed for run in report.runs_of(report.results[0].name)} - set(report.seeds)
    more = f" (float32 with {listed(sorted(own))} too, for its spread)" if own else ""
    yield (
        f"Made on {report.machine}, with {seeds}{more}, {counted(report.num_steps, 'step')} of "
        f"{counted(report.batch_size, 'sample')}, in {report.seconds:.1f} s. The verdicts are "
        f"about {report.measure}; tolerance: {percent(report.tolerance)} of what float32 learned."
    )


def _failures(report: ComparisonReport) -> Iterator[str]:
    told = " ".join(
        reason for one in report.results if one.verdict for reason in one.verdict.reasons
    )
    for run in report.runs:
        failure = run.failure.rstrip(".")
        if failure and failure not in told:
            steps = counted(len(run.losses), "step")
            yield f"{run.name} with seed {run.seed} ended after {steps}: {failure}."


def _repeats(report: ComparisonReport) -> Iterator[str]:
    """Says which precisions gave the same losses again, of those that were tried."""
    tried = [run for run in report.runs if run.repeats_exactly is not None]
    other = list(dict.fromkeys(run.name for run in tried if not run.repeats_exactly))
    same = [name for name in dict.fromkeys(run.name for run in tried) if name not in other]
    again = "The first steps, done again, gave"
    if same:
        yield f"{again} the same losses bit for bit in {listed(same)}."
    if other:
        yield f"{again} other losses in {listed(other)}: some operation there is not deterministic."
