"""What a comparison of precisions says of its numbers, in tables and in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tf_amp_kit.comparison.training.record.report import ComparisonReport

__all__ = ["circumstances", "more_tables", "quality_table", "recommendation", "verdicts"]


def recommendation(report: ComparisonReport) -> Iterator[str]:
    """Says what to train with, and why."""
    yield f"Recommended for {report.model_name!r}: {report.recommendation.name}."
    yield from report.recommendation.reasons


def verdicts(report: ComparisonReport) -> Iterator[str]:
    """Says of each precision whether it trains as well as float32."""
    for one in report.results:
        if one.verdict is not None:
            yield f"{one.name}: {one.verdict.outcome}. {' '.join(one.verdict.reasons)}"


def quality_table(report: ComparisonReport) -> str:
    """Lays out the measures of quality."""
    return ""


def more_tables(report: ComparisonReport) -> Iterator[str]:
    """Lays out gradients, speed and memory, as far as there are any."""
    yield from ()


def circumstances(report: ComparisonReport) -> Iterator[str]:
    """Says on what the report was made, and what that took."""
    yield f"Made on {report.machine}, in {report.seconds:.1f} s."
