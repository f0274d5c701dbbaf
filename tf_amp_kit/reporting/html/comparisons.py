"""Sections of what was decided by running both precisions: plans, comparisons, memory."""

from __future__ import annotations

from tf_amp_kit.comparison.memory import words as memory_words
from tf_amp_kit.comparison.memory.record import MemoryEstimate
from tf_amp_kit.comparison.planning.record import words as plan_words
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.comparison.training.record import tables as comparison_tables
from tf_amp_kit.comparison.training.record import words as comparison_words
from tf_amp_kit.comparison.training.record.parts import UNDECIDED, WORSE
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.reporting.comparison_plots import (
    plot_costs,
    plot_curves,
    plot_gradient_histograms,
)
from tf_amp_kit.reporting.html.drawing import drawn
from tf_amp_kit.reporting.html.views import FINE, LOOK, NEUTRAL, PROBLEM, Section, Table
from tf_amp_kit.reporting.plots import plot_plan

__all__ = ["comparison", "memory", "plan"]


def plan(record: PrecisionPlan) -> Section:
    """Shows which layers stay in float32, and what that keeps."""
    units = plan_words.unit_rows(record, record.units, with_precision=True)
    errors = plan_words.error_rows(record)
    sentences = [plan_words.step_times(record), plan_words.effort(record), *record.notes]
    name = record.model_name
    return Section(
        f"Precision plan of {name!r} in {record.precision}",
        FINE if record.meets_tolerance else PROBLEM,
        plan_words.verdict(record),
        [one for one in sentences if one],
        [Table("Errors against float32", *errors), Table(*units)],
        [drawn(f"Error by the number of pins, {name}", plot_plan, record)],
    )


def comparison(report: ComparisonReport) -> Section:
    """Shows whether each precision trains as well as float32, and what it brings."""
    outcomes = [one.verdict.outcome for one in report.results if one.verdict is not None]
    status = PROBLEM if WORSE in outcomes else LOOK if UNDECIDED in outcomes else FINE
    verdicts = list(comparison_words.verdicts(report))
    sentences = [*comparison_words.recommendation(report), *verdicts]
    # The one that the status is about, or what to train with where all is well.
    of_status = {PROBLEM: WORSE, LOOK: UNDECIDED}.get(status)
    first = outcomes.index(of_status) if of_status in outcomes else None
    verdict = sentences[0] if first is None else verdicts[first]
    sentences = [
        *(one for one in sentences if one != verdict),
        *comparison_words.circumstances(report),
        *report.notes,
    ]
    tables = [
        Table(one.title, *one.shown(), notes=one.notes) for one in comparison_tables.tables(report)
    ]
    name = report.model_name
    figures = [
        drawn(f"Loss curves of {name}", plot_curves, report),
        drawn(f"Time and memory of {name}", plot_costs, report),
    ]
    if any(one.gradients for one in report.results):
        title = f"Gradient histograms of {name}"
        figures.append(drawn(title, plot_gradient_histograms, report))
    return Section(f"Precisions compared on {name!r}", status, verdict, sentences, tables, figures)


def memory(estimate: MemoryEstimate) -> Section:
    """Shows what a train step takes, and what for."""
    return Section(
        f"Memory of {estimate.model_name!r} in {estimate.precision}",
        NEUTRAL,
        memory_words.verdict(estimate),
        estimate.notes,
        [
            Table("What it is for", ("Part", "Size"), memory_words.part_rows(estimate)),
            Table("By layer", memory_words.LAYER_COLUMNS, memory_words.layer_rows(estimate)),
        ],
    )
