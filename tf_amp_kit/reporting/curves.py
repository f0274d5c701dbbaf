"""The curves of a comparison of precisions, and their differences to float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.reporting.canvas import GREY, literal, say_nothing_there
from tf_amp_kit.reporting.runs import RunValues, lost_step, skipped_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_differences", "draw_lost", "draw_skipped", "draw_values", "legend_entries"]

# By Okabe and Ito, the darker ones first; in grey, the strokes tell them apart.
_COLOURS: Final = (
    "#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#222222",
)  # fmt: skip
_STROKES: Final = (
    "-",
    (0, (6, 1.5)),
    (0, (2, 1)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (1, 1.5)),
    (0, (4, 1, 1, 1, 1, 1)),
)

_BAND: Final[dict[str, Any]] = {"facecolor": "#0072B2", "alpha": 0.18, "lw": 0}
_LOST: Final[dict[str, Any]] = {
    "marker": "X",
    "ls": "none",
    "ms": 8,
    "mec": "black",
    "mew": 0.6,
}
_SKIPPED: Final[dict[str, Any]] = {"marker": "|", "ls": "none", "ms": 6, "mew": 1.2}
# A linear axis would hide what is so many times smaller than the largest.
_WIDE_VALUES: Final = 30.0
_WIDE_DIFFERENCES: Final = 20.0
# So few points have a marker each.
_FEW: Final = 40
# Of the height of a plot: the first row of ticks for skipped steps, and the next ones.
_LOWEST_ROW: Final = 0.02
_ROW_STEP: Final = 0.04


def _styles(report: ComparisonReport) -> dict[str, dict[str, Any]]:
    names = [one.name for one in report.results]
    looks = zip(names, cycle(_COLOURS), cycle(_STROKES), strict=False)
    return {name: {"color": colour, "ls": stroke} for name, colour, stroke in looks}


def draw_values(axes: Axes, values: RunValues, report: ComparisonReport) -> None:
    """Draws the mean over the seeds of each precision, and the spread of float32."""
    _prepare(axes, values.title)
    spread, centre = values.spread(), values.mean(values.reference)
    if spread is not None:
        axes.fill_between(values.steps, centre - spread, centre + spread, zorder=1, **_BAND)
    means = {name: values.mean(name) for name in values.by_run}
    _draw_lines(axes, values, means, report)
    known = _known(means.values())
    if len(known) and known.min() > 0 and known.max() > _WIDE_VALUES * known.min():
        axes.set_yscale("log")


def draw_differences(axes: Axes, values: RunValues, report: ComparisonReport) -> None:
    """Draws by how much each precision is above float32 with the same seed."""
    _prepare(axes, "Difference to float32 of the same seed")
    spread = values.spread()
    if spread is not None:
        axes.fill_between(values.steps, -spread, spread, zorder=1, **_BAND)
    axes.axhline(0, color="#0072B2", lw=1, zorder=1)
    others = [name for name in values.by_run if name != values.reference]
    means = {name: values.difference(name) for name in others}
    _draw_lines(axes, values, means, report)
    _widen(axes, [*means.values(), *([] if spread is None else [spread])])
    axes.set_xlabel("Step")


def draw_skipped(axes: Axes, report: ComparisonReport) -> None:
    """Draws a tick for each step that was skipped, one row per precision."""
    styles = _styles(report)
    for row, (name, steps) in enumerate(_skipped(report).items()):
        height = [_LOWEST_ROW + _ROW_STEP * row] * len(steps)
        colour = styles[name]["color"]
        transform = axes.get_xaxis_transform()
        axes.plot(steps, height, color=colour, transform=transform, zorder=3, **_SKIPPED)


def draw_lost(axes: Axes, values: RunValues, report: ComparisonReport) -> None:
    """Draws a cross on the curve where a run ended, or its loss was finite no longer.

    Without a point before that, the cross is in the left upper corner.
    """
    styles = _styles(report)
    for name, step in _lost(report):
        style = {"mfc": styles[name]["color"], "clip_on": False, "zorder": 5, **_LOST}
        point = _last_point(values, name, step)
        if point is not None:
            axes.plot(*point, **style)
        elif len(values.steps):
            axes.plot(values.steps[0], 1, transform=axes.get_xaxis_transform(), **style)


def legend_entries(report: ComparisonReport, values: RunValues) -> dict[str, Any]:
    """Gives the legend's handles by their labels, of what there is."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {
        literal(name): Line2D([], [], lw=1.6, **style) for name, style in _styles(report).items()
    }
    if values.spread() is not None:
        entries["± spread between float32's seeds"] = Patch(**_BAND)
    if _skipped(report):
        entries["skipped step"] = Line2D([], [], color=GREY, **{**_SKIPPED, "ms": 9})
    if any(_lost(report)):
        entries["run ended, or not finite"] = Line2D([], [], mfc=GREY, **_LOST)
    return entries


def _prepare(axes: Axes, title: str) -> None:
    axes.set_title(literal(title), loc="left", weight="bold")
    axes.grid(axis="y", color="#E2E2E2", lw=0.6)
    axes.set_axisbelow(True)


def _draw_lines(
    axes: Axes,
    values: RunValues,
    means: Mapping[str, NDArray[np.float64]],
    report: ComparisonReport,
) -> None:
    from matplotlib.ticker import MaxNLocator

    if not len(_known(means.values())):
        say_nothing_there(axes, "no finite value" if means else "no other precision")
    styles = _styles(report)
    marker: dict[str, Any] = {"marker": "o", "ms": 3.5} if len(values.steps) <= _FEW else {}
    for i, (name, mean) in enumerate(means.items()):
        # Wider, to be seen below one that is the same.
        style = {"lw": 3.0 if name == values.reference else 1.6, **styles[name], **marker}
        ends = [step for lost, step in _lost(report) if lost == name]
        axes.plot(*_broken(values.steps, mean, ends), zorder=2 + 0.01 * i, **style)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))


def _broken(
    steps: NDArray[np.float64], mean: NDArray[np.float64], ends: Iterable[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Leaves a gap where a run is in the mean no longer: it would look like a fall."""
    places = [int(np.searchsorted(steps, end, side="right")) for end in ends]
    inside = sorted({place for place in places if 0 < place < len(steps)})
    between = [(steps[place - 1] + steps[place]) / 2 for place in inside]
    return np.insert(steps, inside, between), np.insert(mean, inside, np.nan)


def _widen(axes: Axes, means: Sequence[NDArray[np.float64]]) -> None:
    """Takes an axis that is logarithmic far from zero, where one curve dwarfs the others."""
    largest = [np.abs(_known([one])).max() for one in means if len(_known([one]))]
    sizes = [one for one in largest if one > 0]
    if sizes and max(sizes) > _WIDE_DIFFERENCES * min(sizes):
        axes.set_yscale("symlog", linthresh=float(min(sizes)), linscale=0.8)


def _known(means: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
    every = np.concatenate([np.zeros(0), *means])
    known: NDArray[np.float64] = every[np.isfinite(every)]
    return known


def _skipped(report: ComparisonReport) -> dict[str, list[int]]:
    found = {
        one.name: sorted({step for run in report.runs_of(one.name) for step in skipped_steps(run)})
        for one in report.results
    }
    return {name: steps for name, steps in found.items() if steps}


def _lost(report: ComparisonReport) -> Iterator[tuple[str, int]]:
    for run in report.runs:
        step = lost_step(run)
        if step is not None:
            yield run.name, step


def _last_point(values: RunValues, name: str, step: int) -> tuple[float, float] | None:
    mean = values.mean(name)[:step]
    known = np.nonzero(np.isfinite(mean))[0]
    return (values.steps[known[-1]], mean[known[-1]]) if len(known) else None
