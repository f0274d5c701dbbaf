"""Figures of comparisons of precisions: curves, time and memory, gradients.

They stand for themselves, as those of `tf_amp_kit.reporting.plots` do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tf_amp_kit.comparison.training.record.parts import GradientPoint
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.comparison.words import counted, listed
from tf_amp_kit.errors import SelectionError
from tf_amp_kit.reporting import costs, curves, exponents
from tf_amp_kit.reporting.canvas import HALF_STYLE, WIDE_STYLE, add_legend, drawing, set_title
from tf_amp_kit.reporting.exponents import PANEL_INCHES, RULER_INCHES, Panel
from tf_amp_kit.reporting.panels import pair_panel
from tf_amp_kit.reporting.ranges import FormatRange, range_of, view_of
from tf_amp_kit.reporting.runs import evaluated, trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_costs", "plot_curves", "plot_gradient_histograms"]

_WIDTH_INCHES: Final = 11.0
# Title and legend, and the axis below.
_FRAME_INCHES: Final = 1.5
_CURVES_INCHES: Final = (3.0, 2.2)
# Between one precision's histogram and the next: the axis.
_GAP_INCHES: Final = 0.4
# How many entries of the legend fit beside each other, and how many if there are more.
_ONE_ROW: Final = 6
_TWO_ROWS: Final = 5


def plot_curves(report: ComparisonReport, *, metric: str = "loss") -> Figure:
    """Draws how the loss falls in each precision, and how far it is from float32's.

    Use it to see whether a precision differs from float32 by more than float32 does
    from itself with another seed, and from which step on.

    Args:
        report: What `compare_precisions` returned.
        metric: The metric on the validation data that is drawn beside the training
            loss: `"loss"`, or another of those that the model was compiled with.

    Returns:
        A `matplotlib.figure.Figure`: the means over the seeds on top, below their
        differences to the float32 runs with the same seeds. The band is the standard
        deviation between float32's seeds, around its mean and around zero. Training
        losses are smoothed; ticks at the lower edge are steps that were skipped.

    Raises:
        SelectionError: If the validation data have no such metric.
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> from tf_amp_kit.comparison.training.record.parts import PrecisionResult, TrainingRun
    >>> from tf_amp_kit.comparison.training.record.parts import Recommendation
    >>> names = ("float32", "bfloat16")
    >>> report = ComparisonReport(
    ...     model_name="net", machine="2 CPUs", batch_size=32, num_steps=3, seeds=(0,),
    ...     tolerance=0.01, measure="loss",
    ...     results=tuple(PrecisionResult(name, name, "O1", 0, None, ()) for name in names),
    ...     runs=tuple(TrainingRun(name, 0, (3.0, 2.0, 1.0)) for name in names),
    ...     recommendation=Recommendation("float32", None, None, ()), seconds=1.5,
    ... )  # fmt: skip
    >>> [axes.get_title("left") for axes in plot_curves(report).axes]
    ['Training loss', 'Difference to float32 of the same seed']
    """
    columns = [one for one in (trained(report), evaluated(report, metric)) if one is not None]
    with drawing(_WIDTH_INCHES, _FRAME_INCHES + sum(_CURVES_INCHES)) as figure:
        seeds = counted(len(report.seeds), "seed")
        set_title(figure, f"{_subject(report)}: {seeds}, {counted(report.num_steps, 'step')}")
        grid = figure.subplots(
            2,
            len(columns),
            squeeze=False,
            sharex="col",
            gridspec_kw={"height_ratios": _CURVES_INCHES},
        )
        for values, (above, below) in zip(columns, grid.T, strict=True):
            curves.draw_values(above, values, report)
            curves.draw_differences(below, values, report)
        curves.draw_skipped(grid[0, 0], report)
        curves.draw_lost(grid[0, 0], columns[0], report)
        entries = curves.legend_entries(report, columns[0])
        add_legend(figure, entries, len(entries) if len(entries) <= _ONE_ROW else _TWO_ROWS)
    return figure


def plot_costs(report: ComparisonReport) -> Figure:
    """Draws how long a train step takes in each precision, and how much memory.

    Use it to see what half precision brings on this machine, with and without XLA.

    Args:
        report: What `compare_precisions` returned.

    Returns:
        A `matplotlib.figure.Figure`: on the left the median of whole train steps, with
        a whisker from quartile to quartile; on the right the peak that was estimated,
        the one that was measured in a process of its own, and the largest batch that
        fits by the estimate.

    Raises:
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> from tf_amp_kit.comparison.timing import Quartiles
    >>> from tf_amp_kit.comparison.training.record.parts import PrecisionResult
    >>> from tf_amp_kit.comparison.training.record.parts import Recommendation, StepSpeed
    >>> speed = StepSpeed(Quartiles(0.009, 0.010, 0.012), 0.5, 3200.0)
    >>> report = ComparisonReport(
    ...     model_name="net", machine="2 CPUs", batch_size=32, num_steps=3, seeds=(0,),
    ...     tolerance=0.01, measure="loss", runs=(),
    ...     results=(PrecisionResult("float32", "float32", "O0", 0, None, (), speed=speed),),
    ...     recommendation=Recommendation("float32", None, None, ()), seconds=1.5,
    ... )  # fmt: skip
    >>> [text.get_text() for text in plot_costs(report).axes[0].texts]
    ['10 ms']
    """
    with drawing(_WIDTH_INCHES, _FRAME_INCHES + costs.costs_inches(report)) as figure:
        samples = counted(report.batch_size, "sample")
        set_title(figure, f"{_subject(report)}: time and memory with {samples} per batch")
        left, right = figure.subplots(1, 2, sharey=True)
        costs.draw_times(left, report)
        costs.draw_memory(right, report)
        add_legend(figure, costs.legend_entries(report), 4)
    return figure


def plot_gradient_histograms(report: ComparisonReport, *, step: int | None = None) -> Figure:
    """Draws the exponents of the gradients in each half precision, next to float32's.

    Use it to see in which precision gradients vanish, and what the loss scale does
    against it. `plot_gradients(point.comparison)` draws the weights one by one.

    Args:
        report: What `compare_precisions` returned.
        step: After how many steps of the training; None for the last one that the
            gradients were compared at.

    Returns:
        A `matplotlib.figure.Figure`: per precision its range, divided by its loss scale,
        and below it a histogram of all weight gradients in float32 and in half.

    Raises:
        SelectionError: If gradients were not compared, or not at this step.
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> from tf_amp_kit.comparison.training.record.parts import PrecisionResult
    >>> from tf_amp_kit.comparison.training.record.parts import Recommendation
    >>> from tf_amp_kit.inspection.numerics.gradients import compare_gradients
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> x, y = np.ones((4, 2)), np.ones((4, 1))
    >>> gradients = compare_gradients(model, x, y, loss="mse", precision="bf16", verbose=0)
    >>> points = (GradientPoint(0, gradients),)
    >>> report = ComparisonReport(
    ...     model_name="net", machine="2 CPUs", batch_size=4, num_steps=3, seeds=(0,),
    ...     tolerance=0.01, measure="loss", runs=(),
    ...     results=(PrecisionResult("bfloat16", "bfloat16", "O1", 0, None, (), points),),
    ...     recommendation=Recommendation("float32", None, None, ()), seconds=1.5,
    ... )  # fmt: skip
    >>> plot_gradient_histograms(report).axes[1].get_title("left")
    'bfloat16, before the first step'
    """
    chosen = _points(report, step)
    panels = [
        pair_panel(point.comparison.whole, f"{name}, {_when(point)}") for name, point in chosen
    ]
    ranges = [
        range_of(point.comparison.precision, point.comparison.loss_scale) for _, point in chosen
    ]
    heights = [RULER_INCHES, PANEL_INCHES] * len(panels)
    with drawing(_WIDTH_INCHES, _FRAME_INCHES + sum(heights) + _GAP_INCHES * len(panels)) as figure:
        set_title(figure, f"Weight gradients of {report.model_name!r} in half next to float32")
        axes = figure.subplots(len(heights), 1, gridspec_kw={"height_ratios": heights})
        view = _common_view(ranges, panels)
        for i, (panel, one) in enumerate(zip(panels, ranges, strict=True)):
            ruler, histogram = axes[2 * i : 2 * i + 2]
            exponents.draw_panels(ruler, [histogram], [panel], [one], view=view)
            if panel is not panels[-1]:
                histogram.set_xlabel("")
        entries = {
            **exponents.series_entries({"float32": WIDE_STYLE, "half": HALF_STYLE}),
            **exponents.legend_entries(ranges, "half"),
        }
        add_legend(figure, entries, 4)
    return figure


def _points(report: ComparisonReport, step: int | None) -> list[tuple[str, GradientPoint]]:
    """Chooses the gradients of each precision at a step, or the last ones of each."""
    every = [(one.name, point) for one in report.results for point in one.gradients]
    # Of equal keys, a dictionary keeps the last value.
    found = (
        list(dict(every).items()) if step is None else [one for one in every if one[1].step == step]
    )
    if not found:
        steps = sorted({point.step for _, point in every})
        known = f"a step out of {steps}" if steps else "a report with gradients"
        received = f"step={step!r}" if steps else "one without; compare with `gradient_steps`"
        raise SelectionError(f"No gradients to draw. Expected {known}. Received: {received}.")
    return found


def _when(point: GradientPoint) -> str:
    return f"after {counted(point.step, 'step')}" if point.step else "before the first step"


def _common_view(ranges: Iterable[FormatRange], panels: Sequence[Panel]) -> tuple[float, float]:
    """Chooses one part of the axis for all, so that histograms can be compared."""
    ranges, seen = list(ranges), exponents.exponents_of(panels)
    # Once more with the widest: its words need more room than those of a narrow view.
    for _ in range(2):
        views = [view_of([one], seen, is_close=True) for one in ranges]
        low, high = min(low for low, _ in views), max(high for _, high in views)
        seen = [*seen, math.ceil(low + 1), math.floor(high - 2)]
    return low, high


def _subject(report: ComparisonReport) -> str:
    return f"{report.model_name!r} in {listed([one.name for one in report.results])}"
