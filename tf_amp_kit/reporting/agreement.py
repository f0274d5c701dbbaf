"""How well each weight's gradient in half agrees with that in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.formats import format_of
from tf_amp_kit.inspection.numerics.pairs import GradientComparison, GradientPair
from tf_amp_kit.reporting.canvas import GREY, clamped, label_rows, say_nothing_there

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["agreement_inches", "draw_cosines", "draw_errors", "legend_entries"]

_DOT: Final[dict[str, Any]] = {"marker": "o", "markersize": 5, "color": "#0072B2", "linestyle": "none"}
_IDLE_DOT: Final[dict[str, Any]] = {**_DOT, "markerfacecolor": "white", "color": GREY}
_CROSS: Final[dict[str, Any]] = {
    "marker": "X",
    "markersize": 7,
    "linestyle": "none",
    "markerfacecolor": "#D55E00",
    "markeredgecolor": "black",
    "markeredgewidth": 0.5,
}

# Cosines are usually near 1; with a narrower axis rounding would look like a fault.
_LOWEST_COSINE: Final = 0.9
_NO_NUMBER: Final = "undefined or not finite (at the edge)"


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
    axes.set_xlabel(f"dotted: rounding to {comparison.precision} once, at most")
    _draw_dots(axes, comparison, lambda pair: pair.relative_error)
    axes.tick_params(labelleft=False)


def legend_entries(comparison: GradientComparison) -> dict[str, Any]:
    """Gives the legend's handles by their labels, of what there is."""
    from matplotlib.lines import Line2D

    pairs = comparison.pairs
    numbers = [number for one in pairs for number in (one.cosine, one.relative_error)]
    entries: dict[str, Any] = {}
    if comparison.idle:
        entries["float32 gradient zero but for rounding"] = Line2D([], [], **_IDLE_DOT)
    if not all(map(math.isfinite, numbers)):
        entries[_NO_NUMBER] = Line2D([], [], **_CROSS)
    if any(one.relative_error == 0 for one in pairs):
        entries["no error (at the left edge)"] = Line2D([], [], **{**_DOT, "marker": "<"})
    return entries


def _draw_dots(
    axes: Axes, comparison: GradientComparison, number: Callable[[GradientPair], float]
) -> None:
    axes.grid(axis="y", color="#E2E2E2", lw=0.6)
    axes.set_axisbelow(True)
    if not comparison.pairs:
        say_nothing_there(axes, "no weight has a gradient")
        axes.set_yticks([])
        return
    idle = set(comparison.idle)
    groups: dict[str, list[tuple[float, int]]] = {"dot": [], "idle": [], "cross": [], "exact": []}
    is_log = axes.get_xscale() == "log"
    left, right = axes.get_xlim()
    for row, pair in enumerate(comparison.pairs):
        value = number(pair)
        if not math.isfinite(value):
            groups["cross"].append((right if value > 0 else left, row))
        elif is_log and not value:
            groups["exact"].append((left, row))
        else:
            groups["idle" if pair.path in idle else "dot"].append((value, row))
    styles = {"dot": _DOT, "idle": _IDLE_DOT, "cross": _CROSS, "exact": {**_DOT, "marker": "<"}}
    for key, points in groups.items():
        _draw_points(axes, points, styles[key])


def _draw_points(axes: Axes, points: Sequence[tuple[float, int]], style: dict[str, Any]) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), clip_on=False, zorder=3, **style)


def _badness(pair: GradientPair) -> float:
    return -1.0 if math.isnan(pair.relative_error) else pair.relative_error
