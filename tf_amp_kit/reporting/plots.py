"""Figures of numerics reports, gradient comparisons and precision plans, for notebooks and files.

Each function returns a `matplotlib.figure.Figure` that stands for itself: nothing is
shown, and pyplot does not know of it. `figure.savefig("name.png")` writes it; in a
notebook, `%matplotlib inline` once makes it the picture of a cell that ends in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.inspection.numerics.pairs import GradientComparison
from tf_amp_kit.inspection.numerics.report import NumericsReport
from tf_amp_kit.reporting import agreement, exponents, layer_map, planned
from tf_amp_kit.reporting.canvas import (
    HALF_STYLE,
    WIDE_STYLE,
    add_legend,
    drawing,
    set_title,
)
from tf_amp_kit.reporting.exponents import PANEL_INCHES, RULER_INCHES
from tf_amp_kit.reporting.panels import comparison_panels, report_panels
from tf_amp_kit.reporting.ranges import range_of, ranges_from

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_exponents", "plot_gradients", "plot_layers", "plot_plan"]

_WIDTH_INCHES: Final = 11.0
# Title and legend, and the axis below.
_FRAME_INCHES: Final = 1.5


def plot_exponents(
    report: NumericsReport,
    *,
    paths: str | Iterable[str] | None = None,
    kinds: str | Iterable[str] | None = None,
) -> Figure:
    """Draws how large a model's numbers are, against the ranges of the half formats.

    Use it to see at a glance how far numbers are from vanishing and from overflow, and
    in which direction a loss scale would have to move the gradients.

    Args:
        report: What `measure_numerics` returned. Gradients are drawn as they are in
            it, times its loss scale.
        paths: Paths or names of tensors, to draw each in a histogram of its own: a
            layer's for outputs and their gradients, a weight's for itself and its
            gradient. None adds tensors up.
        kinds: `"input"`, `"output"`, `"gradient"`, `"weight"` or `"weight_gradient"`.
            Without paths, there is one histogram for each; None means one of all
            outputs and one of all gradients. With paths, None means every kind.

    Returns:
        A `matplotlib.figure.Figure`: the ranges of both formats on top, then the
        histograms. A bar is the number of elements with `2^e <= |x| < 2^(e + 1)`.
        Shading is exact: it starts where rounding to nearest gives zero or infinity.

    Raises:
        SelectionError: If the report has no such tensors, or more than 40 of them.
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> from tf_amp_kit.inspection.numerics.measure import measure_numerics
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> x, y = np.ones((4, 2)), np.ones((4, 1))
    >>> report = measure_numerics(model, x, y, loss="mse", precision="fp16", verbose=0)
    >>> figure = plot_exponents(report)
    >>> [axes.get_title("left") for axes in figure.axes[1:]]
    ['All outputs (1 tensor)', 'All gradients (3 tensors)']
    >>> [axes.get_title("left") for axes in plot_exponents(report, paths="out/bias").axes[1:]]
    ['out/bias, weight', 'out/bias, weight gradient']
    """
    panels = report_panels(report, paths, kinds)
    ranges = ranges_from(report.precision)
    ruler_height = RULER_INCHES * len(ranges)
    height = _FRAME_INCHES + ruler_height + PANEL_INCHES * len(panels)
    with drawing(_WIDTH_INCHES, height) as figure:
        set_title(figure, f"Exponents of {_subject(report)}")
        ratios = [ruler_height, *[PANEL_INCHES] * len(panels)]
        ruler, *axes = figure.subplots(
            len(ratios), 1, squeeze=False, gridspec_kw={"height_ratios": ratios}
        ).flat
        exponents.draw_panels(ruler, axes, panels, ranges)
        add_legend(figure, exponents.legend_entries(ranges), 5)
    return figure


def plot_layers(report: NumericsReport) -> Figure:
    """Draws a map of where in a model numbers vanish, and where they overflow.

    Use it to see which layers to keep in float32, and whether losses are in the
    outputs, where a loss scale changes nothing, or in the gradients.

    Args:
        report: What `measure_numerics` returned.

    Returns:
        A `matplotlib.figure.Figure` with two maps, underflow and overflow. Layers are
        rows, in the order of execution; their outputs, the gradients of these, their
        weights and the gradients of those are columns. The colour is the share of all
        finite non-zero elements in a cell; where labels do not all fit, the layers
        that lose most have one.

    Raises:
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> from tf_amp_kit.inspection.numerics.measure import measure_numerics
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> x, y = np.ones((4, 2)), np.ones((4, 1))
    >>> report = measure_numerics(model, x, y, loss="mse", precision="fp16", verbose=0)
    >>> figure = plot_layers(report)
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['out']
    """
    rows = layer_map.layer_rows(report)
    height = _FRAME_INCHES + 0.8 + layer_map.map_inches(len(rows))
    with drawing(_WIDTH_INCHES, height) as figure:
        set_title(figure, f"Losses by layer of {_subject(report)}")
        left, right = figure.subplots(1, 2)
        layer_map.draw_map(left, rows, "num_underflow", "Underflow: becomes zero")
        layer_map.draw_map(right, rows, "num_overflow", "Overflow: becomes infinite")
        right.tick_params(labelleft=False)
        add_legend(figure, layer_map.legend_entries(), 4)
    return figure


def plot_gradients(
    comparison: GradientComparison, *, paths: str | Iterable[str] | None = None
) -> Figure:
    """Draws the gradients of both precisions side by side, and how well they agree.

    Use it to see whether half precision loses gradients because they are too small,
    and which weights are concerned.

    Args:
        comparison: What `compare_gradients` returned.
        paths: Paths of weights, to draw the exponents of each by itself; None draws
            those of all gradients together.

    Returns:
        A `matplotlib.figure.Figure`: histograms of exponents on top, the cosine and
        the relative error of every weight below, in the model's order. The half
        gradients are divided by the loss scale, and so are the limits of the format.

    Raises:
        SelectionError: If the comparison has no such weights, or more than 40 of them.
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> from tf_amp_kit.inspection.numerics.gradients import compare_gradients
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> x, y = np.ones((4, 2)), np.ones((4, 1))
    >>> report = compare_gradients(model, x, y, loss="mse", precision="fp16", verbose=0)
    >>> figure = plot_gradients(report)
    >>> [label.get_text() for label in figure.axes[2].get_yticklabels()]
    ['out/kernel', 'out/bias']
    """
    panels = comparison_panels(comparison, paths)
    ranges = [range_of(comparison.precision, comparison.loss_scale)]
    dots_height = agreement.agreement_inches(len(comparison.pairs))
    upper = [RULER_INCHES, *[PANEL_INCHES] * len(panels)]
    with drawing(_WIDTH_INCHES, _FRAME_INCHES + 0.9 + sum(upper) + dots_height) as figure:
        set_title(figure, f"Gradients of {_compared(comparison)}")
        # Apart, so that the labels below take no width from the histograms.
        above, below = figure.subfigures(
            2, 1, squeeze=False, height_ratios=[sum(upper) + 0.6, dots_height + 0.7]
        ).flat
        ruler, *axes = above.subplots(
            len(upper), 1, squeeze=False, gridspec_kw={"height_ratios": upper}
        ).flat
        exponents.draw_panels(ruler, axes, panels, ranges, is_close=True)
        left, right = below.subplots(1, 2, sharey=True)
        agreement.draw_cosines(left, comparison)
        agreement.draw_errors(right, comparison)
        entries = {
            **exponents.series_entries({"float32": WIDE_STYLE, comparison.precision: HALF_STYLE}),
            **exponents.legend_entries(ranges),
            **agreement.legend_entries(comparison),
        }
        add_legend(figure, entries, 3)
    return figure


def plot_plan(plan: PrecisionPlan) -> Figure:
    """Draws what each further pin brings, and which layers lose most in half precision.

    Use it to see whether a slightly larger tolerance would save pins, and how far the
    layers that stay in half are from mattering.

    Args:
        plan: What `plan_precision` returned.

    Returns:
        A `matplotlib.figure.Figure`: the error against the number of pins on top, with
        the tolerance and the plan; below, the first 30 layers of the ranking with
        the error that is predicted of each alone in half precision. What is not finite
        is at the edge.

    Raises:
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> from tf_amp_kit.comparison.planning.record.parts import Errors
    >>> from tf_amp_kit.precision.pinning.pins import Pins
    >>> errors = Errors(output=0.0004)
    >>> plan = PrecisionPlan(
    ...     "net", "float16", "output", 0.002, (), Pins("net", ()), errors, errors, None, None,
    ...     None, (), num_batches=1, num_held_out_batches=0, num_samples=32, num_validations=1,
    ...     num_passes=2, seconds=0.5, step_times=None,
    ... )  # fmt: skip
    >>> [axes.get_title("left") for axes in plot_plan(plan).axes]
    ['Error in the output by number of pins', 'Each layer alone in float16']
    """
    scores_height = planned.scores_inches(plan)
    heights = [planned.CURVE_INCHES, scores_height]
    with drawing(_WIDTH_INCHES, _FRAME_INCHES + 0.9 + sum(heights)) as figure:
        set_title(figure, f"Precision plan of {_planned(plan)}")
        # Apart, so that the labels below take no width from the curve.
        above, below = figure.subfigures(
            2, 1, squeeze=False, height_ratios=[heights[0] + 0.6, heights[1] + 0.6]
        ).flat
        curve, scores = above.subplots(), below.subplots()
        planned.draw_curve(curve, plan)
        planned.draw_scores(scores, plan)
        add_legend(figure, planned.legend_entries(plan), 4)
    return figure


def _planned(plan: PrecisionPlan) -> str:
    count = len(plan.pins.pins)
    pins = "no pins" if not count else "1 pin" if count == 1 else f"{count} pins"
    met = "met" if plan.meets_tolerance else "not met"
    return f"{plan.model_name!r} in {plan.precision}: {pins}, tolerance {plan.tolerance:.3g} {met}"


def _subject(report: NumericsReport) -> str:
    samples = f"{report.num_samples} samples"
    batches = f"{report.num_batches} batches of {samples} in all"
    return (
        f"{report.model_name!r} in {report.precision}, gradients at loss scale "
        f"{report.loss_scale:g}, {f'1 batch of {samples}' if report.num_batches == 1 else batches}"
    )


def _compared(comparison: GradientComparison) -> str:
    return (
        f"{comparison.model_name!r}: {comparison.precision} at loss scale "
        f"{comparison.loss_scale:g} against float32, one batch of {comparison.num_samples} samples"
    )
