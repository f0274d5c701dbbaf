"""The time of a step and the memory of training in several precisions, as bars."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.comparison.training.record.parts import MemoryUse, StepSpeed
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.comparison.words import milliseconds, size
from tf_amp_kit.reporting.canvas import GREY, label_rows, literal, say_nothing_there

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["costs_inches", "draw_memory", "draw_times", "legend_entries"]

_ROW_INCHES: Final = 0.62
_HEIGHT: Final = 0.36
# Of the longest bar: the words beside it need as much again.
_ROOM: Final = 1.5
_MOST_WORDS: Final = 66
# From so many bytes on, numbers in MiB are too long to read.
_LARGE: Final = 4 * 2**30

_STYLES: Final[Mapping[str, dict[str, Any]]] = {
    "without jit_compile": {"facecolor": "#0072B2"},
    "with jit_compile": {"facecolor": "#56B4E9", "hatch": "///", "edgecolor": "white"},
    "memory, estimated": {"facecolor": "#009E73"},
    "memory, measured": {"facecolor": "#8FD0BC", "hatch": "///", "edgecolor": "white"},
}


@dataclass(frozen=True)
class _Bar:
    """One bar, in the row of a precision.

    Attributes:
        row: Which precision.
        kind: Its label in the legend.
        length: How far it goes; None if there are only words.
        words: What stands beside it.
        whisker: The quartiles.
    """

    row: int
    kind: str
    length: float | None
    words: str
    whisker: tuple[float, float] | None = None


def costs_inches(report: ComparisonReport) -> float:
    """Gives the height of the plots: it grows with the number of precisions."""
    return max(1.2, _ROW_INCHES * len(report.results))


def draw_times(axes: Axes, report: ComparisonReport) -> None:
    """Draws how long a train step takes, the median and the quartiles."""
    axes.set_title("Train step, median and quartiles", loc="left", weight="bold")
    axes.set_xlabel("Milliseconds")
    _draw(axes, report, list(_times(report)), "no step was timed")


def draw_memory(axes: Axes, report: ComparisonReport) -> None:
    """Draws the largest memory of training, and which batch fits."""
    axes.set_title("Largest memory of training", loc="left", weight="bold")
    axes.set_xlabel(_unit(report)[0])
    _draw(axes, report, list(_memory(report)), "no memory is known")


def legend_entries(report: ComparisonReport) -> dict[str, Any]:
    """Gives the legend's handles by their labels, of what there is."""
    from matplotlib.patches import Patch

    drawn = {bar.kind for bar in (*_times(report), *_memory(report)) if bar.length is not None}
    return {kind: Patch(**style) for kind, style in _STYLES.items() if kind in drawn}


def _times(report: ComparisonReport) -> Iterator[_Bar]:
    for row, one in enumerate(report.results):
        kinds = {"without jit_compile": one.speed, "with jit_compile": one.jit_speed}
        for kind, speed in kinds.items():
            if speed is not None:
                yield _time_bar(row, kind, speed)


def _time_bar(row: int, kind: str, speed: StepSpeed) -> _Bar:
    times = speed.seconds
    if times is None:
        why = f"{kind}: {' '.join(speed.failure.split())}".rstrip(".")
        return _Bar(row, kind, None, textwrap.shorten(why, _MOST_WORDS, placeholder=" …"))
    whisker = 1000 * times.low, 1000 * times.high
    return _Bar(row, kind, 1000 * times.median, f"{milliseconds(times.median)} ms", whisker)


def _unit(report: ComparisonReport) -> tuple[str, int]:
    """Chooses the name of the unit for memory, and its bytes."""
    uses = [one.memory for one in report.results]
    every = [one.estimated_bytes or 0 for one in uses] + [one.measured_bytes or 0 for one in uses]
    return ("GiB", 2**30) if max(every, default=0) >= _LARGE else ("MiB", 2**20)


def _memory(report: ComparisonReport) -> Iterator[_Bar]:
    unit = _unit(report)[1]
    for row, one in enumerate(report.results):
        estimated, measured = one.memory.estimated_bytes, one.memory.measured_bytes
        if estimated is not None:
            words = f"{size(estimated)}{_largest_batch(one.memory)}"
            yield _Bar(row, "memory, estimated", estimated / unit, words)
        if measured is not None:
            yield _Bar(row, "memory, measured", measured / unit, size(measured))


def _largest_batch(memory: MemoryUse) -> str:
    largest = memory.largest_batch_size
    return "" if largest is None else f", largest batch {largest}"


def _draw(axes: Axes, report: ComparisonReport, bars: Sequence[_Bar], nothing: str) -> None:
    names = [one.name for one in report.results]
    label_rows(axes, names, [0.0] * len(names), costs_inches(report))
    if not bars:
        say_nothing_there(axes, nothing)
        axes.set_xticks([])
        return
    for bar in bars:
        _draw_bar(axes, bar, _offset(bar, bars))
    ends = [bar.whisker[1] if bar.whisker else bar.length or 0.0 for bar in bars]
    axes.set_xlim(0, _ROOM * max(ends) or 1.0)
    axes.grid(axis="x", color="#E2E2E2", lw=0.6)
    axes.set_axisbelow(True)


def _offset(bar: _Bar, bars: Sequence[_Bar]) -> float:
    """Puts the bars of a row below each other, and a single one in its middle."""
    kinds = [one.kind for one in bars if one.row == bar.row]
    return (kinds.index(bar.kind) - (len(kinds) - 1) / 2) * _HEIGHT


def _draw_bar(axes: Axes, bar: _Bar, offset: float) -> None:
    place, end = bar.row + offset, bar.length or 0.0
    if bar.length is not None:
        axes.barh(place, bar.length, _HEIGHT, zorder=2, lw=0, **_STYLES[bar.kind])
    if bar.whisker is not None:
        axes.plot(bar.whisker, [place] * 2, color="#222222", marker="|", ms=5, lw=1.1, zorder=3)
        end = max(end, bar.whisker[1])
    axes.annotate(
        literal(bar.words),
        (end, place),
        (5, 0),
        textcoords="offset points",
        va="center",
        size=8,
        color="#222222" if bar.length is not None else GREY,
        annotation_clip=False,
    )
