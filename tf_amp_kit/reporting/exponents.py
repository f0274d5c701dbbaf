"""Histograms of exponents, with the ranges of the half formats behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.reporting.canvas import (
    OVERFLOW_STYLE,
    SUBNORMAL_STYLE,
    UNDERFLOW_STYLE,
    literal,
    say_nothing_there,
    shortened,
)
from tf_amp_kit.reporting.ranges import FormatRange, view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "PANEL_INCHES",
    "RULER_INCHES",
    "Panel",
    "Series",
    "draw_panels",
    "exponents_of",
    "joined_counts",
    "legend_entries",
    "series_entries",
]

# Per format, and per panel.
RULER_INCHES: Final = 0.42
PANEL_INCHES: Final = 1.9

# On a logarithmic axis: a single element has to have a height.
_LOWEST_COUNT: Final = 0.5

# Of the width of an exponent.
_GAP: Final = 0.16

# Of the axis: within less, the words of two limits do not fit.
_NARROW: Final = 0.25

# What a character takes of a panel's width, in its title and in its note, so that one
# gives way to the other.
_PANEL_WIDTH: Final = 9.2
_TITLE_INCHES: Final = 0.09
_NOTE_INCHES: Final = 0.068
_SHORTEST_TITLE: Final = 30

_LINE_STYLES: Final = {"float16": "-", "bfloat16": (0, (4, 2))}
_LINE_COLOUR: Final = "#222222"


@dataclass(frozen=True)
class Series:
    """Counts that are drawn as bars of one look.

    Attributes:
        counts: Elements with `2^e <= |x| < 2^(e + 1)` for each e.
        style: Keywords of the bars.
    """

    counts: Mapping[int, int]
    style: Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """One histogram.

    Attributes:
        title: What it shows.
        note: What became of the elements.
        series: What is drawn side by side.
    """

    title: str
    note: str
    series: tuple[Series, ...]


def draw_panels(
    ruler: Axes,
    axes: Sequence[Axes],
    panels: Sequence[Panel],
    ranges: Sequence[FormatRange],
    *,
    is_close: bool = False,
    view: tuple[float, float] | None = None,
) -> None:
    """Draws one histogram per panel, and above them the ranges of the formats.

    Args:
        ruler: The axes for the ranges.
        axes: One per panel.
        panels: What to draw.
        ranges: The formats; elements are judged by the first.
        is_close: Leaves limits out that all elements are far from.
        view: The part of the axis to show, in base 2 logarithms; None chooses it.
    """
    from matplotlib.ticker import MaxNLocator

    if view is None:
        view = view_of(ranges, exponents_of(panels), is_close=is_close)
    _draw_ruler(ruler, ranges, view)
    for one, panel in zip(axes, panels, strict=True):
        _draw_ranges(one, ranges, view)
        _draw_bars(one, panel)
        one.set_xlim(view)
        one.xaxis.set_major_formatter(lambda x, _: f"$2^{{{x:g}}}$")
        one.xaxis.set_major_locator(MaxNLocator(14, integer=True))
        one.tick_params(labelbottom=one is axes[-1])
    axes[-1].set_xlabel("Magnitude of the elements")


def exponents_of(panels: Iterable[Panel]) -> list[int]:
    """Gives the exponents that there are elements of."""
    return [e for panel in panels for series in panel.series for e in series.counts]


def legend_entries(ranges: Sequence[FormatRange], judged: str | None = None) -> dict[str, Any]:
    """Gives the legend's handles by their labels.

    Args:
        ranges: The formats.
        judged: What elements are judged by; None for the first of the formats.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return {
        f"becomes zero in {judged or ranges[0].name}": Patch(**UNDERFLOW_STYLE),
        "becomes subnormal: fewer digits": Patch(**SUBNORMAL_STYLE),
        "becomes infinite": Patch(**OVERFLOW_STYLE),
        **{
            f"limits of {_divided(one)}": Line2D(
                [], [], color=_LINE_COLOUR, ls=_LINE_STYLES[one.name]
            )
            for one in ranges
        },
    }


def series_entries(styles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Gives the legend's handles of bars, by their labels."""
    from matplotlib.patches import Patch

    return {label: Patch(**style) for label, style in styles.items()}


def _draw_ranges(axes: Axes, ranges: Sequence[FormatRange], view: tuple[float, float]) -> None:
    judged = ranges[0]
    for start, end, style in (
        (view[0], judged.zero_edge, UNDERFLOW_STYLE),
        (judged.zero_edge, judged.smallest_normal, SUBNORMAL_STYLE),
        (judged.overflow_edge, view[1], OVERFLOW_STYLE),
    ):
        axes.axvspan(start, end, lw=0, zorder=0, gid="range", **style)
    for one in ranges:
        for limit in one.limits:
            axes.axvline(limit, color=_LINE_COLOUR, lw=0.9, ls=_LINE_STYLES[one.name], zorder=3)


def _draw_bars(axes: Axes, panel: Panel) -> None:
    room = (_PANEL_WIDTH - _NOTE_INCHES * len(panel.note)) / _TITLE_INCHES
    title = shortened(panel.title, max(_SHORTEST_TITLE, int(room)))
    axes.set_title(literal(title), loc="left", weight="bold")
    axes.set_title(panel.note, loc="right", size=8.5)
    highest = max((max(one.counts.values(), default=0) for one in panel.series), default=0)
    if not highest:
        say_nothing_there(axes, "no finite element that is not zero")
        axes.set_yticks([])
        return
    # Bars side by side leave a gap to those of the next exponent.
    gap = 0.0 if len(panel.series) == 1 else _GAP
    width = (1 - gap) / len(panel.series)
    for i, one in enumerate(panel.series):
        starts = [exponent + gap / 2 + i * width for exponent in one.counts]
        axes.bar(starts, list(one.counts.values()), width, align="edge", zorder=2, **one.style)
    axes.set_yscale("log")
    # Room above the highest, of a tenth of the axis.
    axes.set_ylim(_LOWEST_COUNT, highest * (highest / _LOWEST_COUNT) ** 0.1)
    axes.set_ylabel("Elements")


def _draw_ruler(axes: Axes, ranges: Sequence[FormatRange], view: tuple[float, float]) -> None:
    """Draws each format's range as a bar, with its limits in words above."""
    for row, one in enumerate(ranges):
        axes.broken_barh(
            [(one.smallest_normal, one.largest - one.smallest_normal)], (row, 0.34), fc="#4D4D4D"
        )
        axes.broken_barh(
            [(one.smallest_subnormal, one.smallest_normal - one.smallest_subnormal)],
            (row, 0.34),
            fc="#C8C8C8",
            ec="#4D4D4D",
        )
        for x, text, alignment in _ruler_texts(one, view):
            axes.text(x, row - 0.08, text, ha=alignment, va="bottom", size=8.5, clip_on=True)
    axes.set_yticks([row + 0.17 for row in range(len(ranges))], [_divided(one) for one in ranges])
    axes.set(xlim=view, ylim=(len(ranges) - 0.5, -0.75))
    axes.tick_params(left=False, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)


def _divided(one: FormatRange) -> str:
    return one.name if one.divisor == 1 else f"{one.name} / {one.divisor:g}"


def _ruler_texts(one: FormatRange, view: tuple[float, float]) -> Iterable[tuple[float, str, str]]:
    subnormal, normal, largest = one.texts
    both = f"{subnormal} smallest subnormal, {normal} smallest normal"
    if one.smallest_subnormal < view[0]:
        yield view[0], f"← {both}", "left"
    elif one.largest - one.smallest_normal < _NARROW * (view[1] - view[0]):
        yield one.smallest_subnormal, f"{both} ", "right"
    else:
        yield one.smallest_subnormal, f"{subnormal} smallest subnormal ", "right"
        yield one.smallest_normal, f" {normal} smallest normal", "left"
    if one.largest <= view[1]:
        yield one.largest, f" {largest} largest", "left"
    else:
        yield view[1], f"{largest} largest →", "right"


def joined_counts(counts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Adds counts up, in the order of their exponents.

    Example:

    >>> joined_counts([{3: 1}, {-2: 5, 3: 4}])
    {-2: 5, 3: 5}
    """
    total: dict[int, int] = {}
    for one in counts:
        for exponent, count in one.items():
            total[exponent] = total.get(exponent, 0) + count
    return dict(sorted(total.items()))
