"""Figures of numerics reports and gradient comparisons, for notebooks and files.

Each function returns a `matplotlib.figure.Figure` that stands for itself: nothing is
shown, and pyplot does not know of it. `figure.savefig("name.png")` writes it; in a
notebook, `%matplotlib inline` once makes it the picture of a cell that ends in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tf_amp_kit.errors import SelectionError
from tf_amp_kit.inspection.numerics.pairs import GradientComparison, GradientPair
from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics
from tf_amp_kit.reporting import agreement, exponents, layer_map
from tf_amp_kit.reporting.canvas import (
    HALF_STYLE,
    WIDE_STYLE,
    add_legend,
    drawing,
    set_title,
    shortened,
)
from tf_amp_kit.reporting.exponents import PANEL_INCHES, RULER_INCHES, Panel, Series
from tf_amp_kit.reporting.ranges import range_of, ranges_from
from tf_amp_kit.tables import percent, some

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_exponents", "plot_gradients", "plot_layers"]

_WIDTH_INCHES: Final = 11.0
# Title and legend, and the axis below.
_FRAME_INCHES: Final = 1.5

# More histograms than this nobody compares, and matplotlib cannot draw them all.
_MOST_PANELS: Final = 40

_KIND_TITLES: Final = {
    "input": "Inputs",
    "output": "Outputs of layers",
    "gradient": "Gradients of outputs",
    "weight": "Weights",
    "weight_gradient": "Gradients of weights",
}
_GRADIENT_KINDS: Final = ("gradient", "weight_gradient")


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
    ['All outputs of layers (1 tensor)', 'All gradients, of outputs and of weights (3 tensors)']
    >>> [axes.get_title("left") for axes in plot_exponents(report, paths="out/bias").axes[1:]]
    ['out/bias, weight', 'out/bias, weight gradient']
    """
    chosen = None if kinds is None else _known_kinds(_as_list(kinds))
    if paths is not None:
        panels = _panels_of_paths(report, _as_list(paths), chosen)
    elif chosen is not None:
        panels = [_joined(f"{_KIND_TITLES[kind]}", report.of_kind(kind)) for kind in chosen]
    else:
        gradients = [one for one in report.tensors if one.kind in _GRADIENT_KINDS]
        panels = [
            _joined("All outputs of layers", report.of_kind("output")),
            _joined("All gradients, of outputs and of weights", gradients),
        ]
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
    pairs = [comparison.whole] if paths is None else _pairs_of(comparison, _as_list(paths))
    panels = [_pair_panel(one) for one in pairs]
    ranges = [range_of(comparison.precision, comparison.loss_scale)]
    dots_height = agreement.agreement_inches(len(comparison.pairs))
    ratios = [RULER_INCHES, *[PANEL_INCHES] * len(panels), dots_height]
    with drawing(_WIDTH_INCHES, _FRAME_INCHES + 0.9 + sum(ratios)) as figure:
        set_title(figure, f"Gradients of {_compared(comparison)}")
        grid = figure.add_gridspec(len(ratios), 2, height_ratios=ratios)
        ruler, *axes = (figure.add_subplot(grid[i, :]) for i in range(len(ratios) - 1))
        exponents.draw_panels(ruler, axes, panels, ranges)
        left, right = (figure.add_subplot(grid[-1, i]) for i in (0, 1))
        agreement.draw_cosines(left, comparison)
        right.sharey(left)
        agreement.draw_errors(right, comparison)
        entries = {
            **exponents.series_entries({"float32": WIDE_STYLE, comparison.precision: HALF_STYLE}),
            **exponents.legend_entries(ranges),
            **agreement.legend_entries(comparison),
        }
        add_legend(figure, entries, 3)
    return figure


def _as_list(names: str | Iterable[str]) -> list[str]:
    # A single text is iterable, too: letter by letter.
    return [names] if isinstance(names, str) else list(names)


def _known_kinds(kinds: Sequence[str]) -> list[str]:
    unknown = [kind for kind in kinds if kind not in _KIND_TITLES]
    if unknown or not kinds:
        raise SelectionError(f"Expected kinds out of {list(_KIND_TITLES)}. Received: {kinds!r}.")
    return list(kinds)


def _panels_of_paths(
    report: NumericsReport, paths: Sequence[str], kinds: Sequence[str] | None
) -> list[Panel]:
    tensors = [one for one in report.tensors if kinds is None or one.kind in kinds]
    names = {name for one in tensors for name in (one.path, one.name)}
    _check_paths(paths, names)
    found = [one for path in paths for one in tensors if path in (one.path, one.name)]
    _check_count(len(found))
    return [
        Panel(
            f"{shortened(one.name, 60)}, {one.kind.replace('_', ' ')}",
            _fates([one]),
            (Series(one.statistics.exponent_counts, WIDE_STYLE),),
        )
        for one in found
    ]


def _pairs_of(comparison: GradientComparison, paths: Sequence[str]) -> list[GradientPair]:
    _check_paths(paths, {one.path for one in comparison.pairs})
    _check_count(len(paths))
    return [one for path in paths for one in comparison.pairs if one.path == path]


def _check_paths(paths: Sequence[str], names: Iterable[str]) -> None:
    known = set(names)
    unknown = [path for path in paths if path not in known]
    if unknown or not paths:
        raise SelectionError(
            f"Expected paths of tensors that were measured, such as {some(sorted(known))}. "
            f"Received: {some(unknown) or 'none'}."
        )


def _check_count(count: int) -> None:
    if count > _MOST_PANELS:
        raise SelectionError(
            f"Expected at most {_MOST_PANELS} tensors in one figure. Received: {count}. "
            "Choose fewer paths or kinds, or draw several figures."
        )


def _joined(title: str, tensors: Sequence[TensorNumerics]) -> Panel:
    counts = exponents.joined_counts(one.statistics.exponent_counts for one in tensors)
    number = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
    return Panel(f"{title} ({number})", _fates(tensors), (Series(counts, WIDE_STYLE),))


def _fates(tensors: Sequence[TensorNumerics]) -> str:
    """Says what became of the elements, in shares of the finite non-zero ones."""
    judgements = [one.judgement for one in tensors]
    num_nonzero = sum(one.num_nonzero for one in judgements)
    parts = []
    if num_nonzero:
        zero = sum(one.num_underflow for one in judgements) / num_nonzero
        subnormal = sum(one.num_subnormal for one in judgements) / num_nonzero
        infinite = sum(one.num_overflow for one in judgements) / num_nonzero
        parts.append(
            f"zero: {percent(zero)}, subnormal: {percent(subnormal)}, infinite: {percent(infinite)}"
        )
    num_bad = sum(one.statistics.num_nan + one.statistics.num_infinite for one in tensors)
    if num_bad:
        parts.append(f"not drawn: {num_bad} NaN or Inf in float32")
    return "; ".join(parts)


def _pair_panel(pair: GradientPair) -> Panel:
    note = f"vanished in half: {percent(pair.vanished_fraction)}"
    if pair.num_nonfinite:
        note += f"; not drawn: {pair.num_nonfinite} NaN or Inf in half"
    series = (
        Series(pair.float32.exponent_counts, WIDE_STYLE),
        Series(pair.half.exponent_counts, HALF_STYLE),
    )
    return Panel(shortened(pair.path, 60) or "All gradients", note, series)


def _subject(report: NumericsReport) -> str:
    batches = "1 batch" if report.num_batches == 1 else f"{report.num_batches} batches"
    return (
        f"{report.model_name!r} in {report.precision}, gradients at loss scale "
        f"{report.loss_scale:g}, {batches} of {report.num_samples} samples in all"
    )


def _compared(comparison: GradientComparison) -> str:
    return (
        f"{comparison.model_name!r}: {comparison.precision} at loss scale "
        f"{comparison.loss_scale:g} against float32, one batch of {comparison.num_samples} samples"
    )
