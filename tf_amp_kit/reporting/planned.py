"""The error of a precision plan by number of pins, and the scores of its layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.comparison.planning.record.parts import UnitEffect
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.comparison.words import number
from tf_amp_kit.reporting.canvas import (
    GREY,
    HALF_STYLE,
    OVERFLOW_STYLE,
    WIDE_STYLE,
    clamped,
    label_rows,
    say_nothing_there,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CURVE_INCHES", "draw_curve", "draw_scores", "legend_entries", "scores_inches"]

CURVE_INCHES: Final = 3.2

_MOST_BARS: Final = 30
# Of the axis: what is lower is drawn at the lower edge.
_MOST_DECADES: Final = 8.0
# Room at the upper edge, where what is not finite goes, as a share of the axis.
_ROOM: Final = 0.12

_TITLE_PAD: Final = 10.0

_TOLERANCE: Final[dict[str, Any]] = {"color": "#222222", "ls": (0, (4, 2)), "lw": 1.1}
_PREDICTED: Final[dict[str, Any]] = {"color": GREY, "lw": 1.2}
_MARKERS: Final[dict[str, dict[str, Any]]] = {
    "measured": {"marker": "o", "color": "#0072B2", "ls": "none", "ms": 5},
    "plan": {"marker": "*", "color": "#D55E00", "ls": "none", "ms": 14, "mec": "black", "mew": 0.6},
    "held out": {"marker": "D", "color": "#D55E00", "ls": "none", "ms": 4.5, "mfc": "white"},
    "not finite": {"marker": "X", "color": "#A0457A", "ls": "none", "ms": 8, "mec": "black"},
}


def scores_inches(plan: PrecisionPlan) -> float:
    """Gives the height of the bars: it grows with them."""
    return clamped(0.2 * min(len(plan.units), _MOST_BARS), 0.8, 6.0)


def draw_curve(axes: Axes, plan: PrecisionPlan) -> None:
    """Draws the error against the number of pins, predicted and measured."""
    from matplotlib.ticker import MaxNLocator

    chosen = len(plan.pins.pins)
    known = _chosen_errors(plan)
    points = {
        "measured": [(p.num_pins, p.measured) for p in plan.curve if p.measured is not None],
        "plan": [(chosen, known["plan"])],
        "held out": [(chosen, known[key]) for key in known if key == "held out"],
    }
    predicted = [(point.num_pins, point.predicted) for point in plan.curve]
    every = [*predicted, *(one for group in points.values() for one in group)]
    bottom, top = _limits([error for _, error in every] + [plan.tolerance])
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    axes.axhline(plan.tolerance, zorder=1, **_TOLERANCE)
    axes.axvline(chosen, color="#E0A58A", lw=1, zorder=0)
    finite = [(x, max(error, bottom)) for x, error in predicted if math.isfinite(error)]
    axes.plot(*_columns(finite), zorder=2, **_PREDICTED)
    for key, group in points.items():
        places = [(x, max(error, bottom)) for x, error in group if math.isfinite(error)]
        _draw_markers(axes, places, key, 4)
    edge = sorted({x for x, error in every if not math.isfinite(error)})
    _draw_markers(axes, [(x, top) for x in edge], "not finite", 3)
    last = max(x for x, _ in every)
    margin = 0.02 * last or 0.5
    axes.set_xlim(-margin, last + margin)
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
    axes.set_xlabel("Number of pins")
    told = "; ".join(f"{key}: {number(error)}" for key, error in known.items())
    # Markers at the upper edge reach out of it.
    title = f"Error in the {plan.metric} by number of pins"
    axes.set_title(title, loc="left", weight="bold", pad=_TITLE_PAD)
    axes.set_title(told, loc="right", size=8.5, pad=_TITLE_PAD)
    axes.grid(axis="y", color="#E2E2E2", lw=0.6)
    axes.set_axisbelow(True)


def _draw_markers(axes: Axes, places: Sequence[tuple[int, float]], key: str, zorder: int) -> None:
    # An empty line that is not clipped has no extent, and spoils the layout.
    if places:
        axes.plot(*_columns(places), clip_on=False, zorder=zorder, **_MARKERS[key])


def draw_scores(axes: Axes, plan: PrecisionPlan) -> None:
    """Draws the score of each layer, the first of the ranking on top."""
    units = plan.units[:_MOST_BARS]
    hidden = len(plan.units) - len(units)
    axes.set_title(f"Each layer alone in {plan.precision}", loc="left", weight="bold")
    if hidden:
        axes.set_title(f"the first {len(units)} of {len(plan.units)} layers", loc="right", size=8.5)
    if not units:
        say_nothing_there(axes, "no layer had to be ranked")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        return
    left, right = _limits([unit.score for unit in units] + [plan.tolerance])
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    for row, unit in enumerate(units):
        end = clamped(unit.score, left, right) if math.isfinite(unit.score) else right
        axes.barh(row, end - left, 0.7, left=left, zorder=2, **_style(unit))
        if unit.reason != "error":
            _say_why(axes, row, end, unit)
    axes.axvline(plan.tolerance, zorder=3, **_TOLERANCE)
    label_rows(axes, [unit.path or "(model)" for unit in units], _ranks(units), scores_inches(plan))
    axes.set_xlabel(f"Error in the {plan.metric}, predicted")


def legend_entries(plan: PrecisionPlan) -> dict[str, Any]:
    """Gives the legend's handles by their labels, of what there is."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {f"tolerance {number(plan.tolerance)}": Line2D([], [], **_TOLERANCE)}
    if plan.curve:
        entries["predicted"] = Line2D([], [], **_PREDICTED)
    if any(point.measured is not None for point in plan.curve):
        entries["measured"] = Line2D([], [], **_MARKERS["measured"])
    errors = _chosen_errors(plan)
    if math.isfinite(errors["plan"]):
        entries["the plan"] = Line2D([], [], **_MARKERS["plan"])
    if math.isfinite(errors.get("held out", math.nan)):
        entries["the plan, held out"] = Line2D([], [], **_MARKERS["held out"])
    curve = [one for p in plan.curve for one in (p.predicted, p.measured) if one is not None]
    if not all(map(math.isfinite, [*curve, *errors.values()])):
        entries["not finite (at the edge)"] = Line2D([], [], **_MARKERS["not finite"])
    units = plan.units[:_MOST_BARS]
    if any(unit.is_pinned for unit in units):
        entries["pinned to float32"] = Patch(**WIDE_STYLE)
    if any(not unit.is_pinned for unit in units):
        entries[f"stays in {plan.precision}"] = Patch(**HALF_STYLE)
    return entries


def _chosen_errors(plan: PrecisionPlan) -> dict[str, float]:
    errors = {"plan": plan.error}
    if plan.held_out_error is not None:
        errors["held out"] = plan.held_out_error
    return errors


def _limits(values: Iterable[float]) -> tuple[float, float]:
    """Returns the ends of a logarithmic axis, with room above for what is not finite."""
    known = [one for one in values if math.isfinite(one) and one > 0] or [1.0]
    high = max(known)
    low = max(min(known), high * 10**-_MOST_DECADES)
    decades = max(math.log10(high / low), 1.0)
    return low / 10 ** (0.08 * decades), high * 10 ** (_ROOM * decades)


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _style(unit: UnitEffect) -> dict[str, Any]:
    style = dict(WIDE_STYLE if unit.is_pinned else HALF_STYLE)
    if not math.isfinite(unit.score):
        style.update(hatch=OVERFLOW_STYLE["hatch"], edgecolor="white")
    return style


def _say_why(axes: Axes, row: int, end: float, unit: UnitEffect) -> None:
    """Writes beside a bar why its layer is ranked before others with larger scores."""
    is_at_edge = not math.isfinite(unit.score)
    text = "not finite" if is_at_edge else f" {unit.reason}: up to {number(unit.largest)}"
    axes.annotate(
        text,
        (end, row),
        (4, 0) if is_at_edge else (2, 0),
        textcoords="offset points",
        va="center",
        size=8,
        color=GREY,
        annotation_clip=False,
    )


def _ranks(units: Sequence[UnitEffect]) -> list[float]:
    return [float(-row) for row in range(len(units))]
