"""How well each weight's gradient in half agrees with that in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.formats import format_of
from tf_amp_kit.inspection.numerics.pairs import GradientComparison, GradientPair
from tf_amp_kit.reporting.canvas import GREY, clamped, label_rows, say_nothing_there

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["agreement_inches", "draw_cosines", "draw_errors", "legend_entries"]

_SIZE: Final = 5.5
_SMALL_SIZE: Final = 3.5
_MOST_LARGE: Final = 60

_DOT: Final[dict[str, Any]] = {"marker": "o", "color": "#0072B2", "linestyle": "none"}
_MARKERS: Final[dict[str, dict[str, Any]]] = {
    "dot": _DOT,
    "idle": {**_DOT, "markerfacecolor": "white", "color": GREY},
    "exact": {**_DOT, "marker": "<"},
    "cross": {
        "marker": "X",
        "linestyle": "none",
        "markerfacecolor": "#D55E00",
        "markeredgecolor": "black",
        "markeredgewidth": 0.5,
    },
}
_LABELS: Final = {
    "idle": "float32 gradient zero but for rounding",
    "exact": "no error (at the left edge)",
    "cross": "undefined or not finite (at the edge)",
}

# Cosines are usually near 1; with a narrower axis rounding would look like a fault.
_LOWEST_COSINE: Final = 0.9


def agreement_inches(num_pairs: int) -> float:
    """Gives the height of the plots: it grows with the rows as far as a page goes."""
    return clamped(0.2 * num_pairs, 1.2, 7.5)


def draw_cosines(axes: Axes, comparison: GradientComparison) -> None:
    """Draws the cosine of every weight's gradients, the model's first weight on top."""
    known = [one.cosine for one in comparison.pairs if math.isfinite(one.cosine)]
    lowest = min([_LOWEST_COSINE, *known])
    width = 1 - lowest
    axes.set_title("Cosine to float32", weight="bold")
    axes.set_xlim(lowest - 0.07 * width, 1 + 0.07 * width)
    axes.axvline(1, color=GREY, lw=0.9, zorder=1)
    axes.set_xlabel("1: the same direction")
    _draw_dots(axes, comparison, lambda pair: pair.cosine)
    badness = [_badness(one) for one in comparison.pairs]
    names = [one.path for one in comparison.pairs]
    if names:
        label_rows(axes, names, badness, agreement_inches(len(names)))


def draw_errors(axes: Axes, comparison: GradientComparison) -> None:
    """Draws the relative error of every weight's gradient, on the same rows."""
    step = format_of(comparison.precision).epsilon / 2
    errors = [one.relative_error for one in comparison.pairs]
    known = [step, *(one for one in errors if one > 0 and math.isfinite(one))]
    axes.set_title("Relative error", weight="bold")
    axes.set_xscale("log")
    axes.set_xlim(min(known) / 3, max(known) * 3)
    axes.axvline(step, color=GREY, ls=":", lw=1.2, zorder=1)
    axes.set_xlabel(f"dotted: unit roundoff of {comparison.precision}")
    _draw_dots(axes, comparison, lambda pair: pair.relative_error)
    axes.tick_params(labelleft=False)


def legend_entries(comparison: GradientComparison) -> dict[str, Any]:
    """Gives the legend's handles by their labels, of what there is."""
    from matplotlib.lines import Line2D

    cosines = _groups(comparison, lambda pair: pair.cosine, is_log=False)
    errors = _groups(comparison, lambda pair: pair.relative_error, is_log=True)
    return {
        label: Line2D([], [], **_MARKERS[key])
        for key, label in _LABELS.items()
        if cosines[key] or errors[key]
    }


def _draw_dots(
    axes: Axes, comparison: GradientComparison, number: Callable[[GradientPair], float]
) -> None:
    axes.grid(axis="y", color="#E2E2E2", lw=0.6)
    axes.set_axisbelow(True)
    if not comparison.pairs:
        say_nothing_there(axes, "no weight has a gradient")
        axes.set_yticks([])
        return
    left, right = axes.get_xlim()
    size = _SIZE if len(comparison.pairs) <= _MOST_LARGE else _SMALL_SIZE
    for key, points in _groups(comparison, number, is_log=axes.get_xscale() == "log").items():
        # What has no place on the axis goes to its edge.
        places = [(clamped(value, left, right), row) for value, row in points]
        if places:
            is_rare = key in ("cross", "exact")
            style = {**_MARKERS[key], "markersize": _SIZE if is_rare else size}
            axes.plot(*zip(*places, strict=True), clip_on=False, zorder=3, **style)


def _groups(
    comparison: GradientComparison, number: Callable[[GradientPair], float], *, is_log: bool
) -> dict[str, list[tuple[float, int]]]:
    """Sorts values and their rows by the marker they get; NaN counts as the least."""
    idle = set(comparison.idle)
    groups: dict[str, list[tuple[float, int]]] = {key: [] for key in _MARKERS}
    for row, pair in enumerate(comparison.pairs):
        value = number(pair)
        if math.isnan(value):
            groups["cross"].append((-math.inf, row))
        elif math.isinf(value):
            groups["cross"].append((value, row))
        elif is_log and not value:
            groups["exact"].append((value, row))
        else:
            groups["idle" if pair.path in idle else "dot"].append((value, row))
    return groups


def _badness(pair: GradientPair) -> float:
    return -1.0 if math.isnan(pair.relative_error) else pair.relative_error
