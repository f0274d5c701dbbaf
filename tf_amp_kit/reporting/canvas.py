"""Empty figures, the palette, and text that fits: what every figure shares."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GREY",
    "HALF_STYLE",
    "LABEL_INCHES",
    "OVERFLOW_STYLE",
    "SUBNORMAL_STYLE",
    "UNDERFLOW_STYLE",
    "WIDE_STYLE",
    "add_legend",
    "clamped",
    "drawing",
    "label_rows",
    "literal",
    "say_nothing_there",
    "set_title",
    "shortened",
]

# By Okabe and Ito: told apart with any kind of colour vision. In grey it is the
# lightness and the hatches that tell them apart.
WIDE_STYLE: Final[Mapping[str, Any]] = {"color": "#0072B2"}
HALF_STYLE: Final[Mapping[str, Any]] = {"color": "#E69F00"}
UNDERFLOW_STYLE: Final[Mapping[str, Any]] = {
    "facecolor": "#FBE3D2",
    "edgecolor": "#D55E00",
    "hatch": "///",
}
OVERFLOW_STYLE: Final[Mapping[str, Any]] = {
    "facecolor": "#F3DCE8",
    "edgecolor": "#A0457A",
    "hatch": "xx",
}
SUBNORMAL_STYLE: Final[Mapping[str, Any]] = {"facecolor": "#EDEDED", "edgecolor": "#EDEDED"}
GREY: Final = "#595959"

# What a row's label needs in height.
LABEL_INCHES: Final = 0.16

_STYLE: Final[dict[str, Any]] = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "figure.titlesize": 11.0,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_TITLE_WIDTH: Final = 110
_LABEL_WIDTH: Final = 44


@contextmanager
def drawing(width_inches: float, height_inches: float) -> Iterator[Figure]:
    """Gives an empty figure, which pyplot knows nothing of.

    The user's own style is set aside meanwhile: white text on a white ground
    would come of one half of it.

    Raises:
        MissingExtraError: If matplotlib cannot be imported.

    Example:

    >>> with drawing(4, 3) as figure:
    ...     figure.axes
    []
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            f"Figures need matplotlib, which cannot be imported ({error}). "
            'Install it: pip install "tf_amp_kit[plots]".'
        ) from error
    with style.context(["default", _STYLE]):
        yield Figure(figsize=(width_inches, height_inches), layout="constrained")


def literal(text: str) -> str:
    """Keeps dollars in names from being read as formulas.

    Example:

    >>> print(literal("a$b$"))
    a\\$b\\$
    """
    return text.replace("$", r"\$")


def shortened(path: str, width: int = _LABEL_WIDTH) -> str:
    """Cuts the front of a long path off: its end is what tells it from others.

    Example:

    >>> shortened("encoder/block/dense/kernel", 13)
    '…dense/kernel'
    """
    return path if len(path) <= width else f"…{path[1 - width :]}"


def clamped(value: float, low: float, high: float) -> float:
    """Returns the nearest value within the bounds.

    Example:

    >>> clamped(7, 1, 5)
    5
    """
    return max(low, min(value, high))


def set_title(figure: Figure, text: str) -> None:
    """Writes the title above all axes, in as many lines as it takes."""
    figure.suptitle(textwrap.fill(literal(text), _TITLE_WIDTH))


def add_legend(figure: Figure, entries: Mapping[str, Any], num_columns: int) -> None:
    """Puts a legend below all axes, where no data are."""
    figure.legend(
        list(entries.values()),
        list(entries),
        loc="outside lower center",
        ncols=num_columns,
        frameon=False,
    )


def say_nothing_there(axes: Axes, text: str) -> None:
    """Writes in an empty plot why it is empty."""
    axes.text(
        0.5,
        0.5,
        text,
        transform=axes.transAxes,
        ha="center",
        va="center",
        color=GREY,
        size=10,
        bbox={"facecolor": "white", "edgecolor": "none"},
        zorder=4,
    )


def label_rows(
    axes: Axes, names: Sequence[str], badness: Sequence[float], height_inches: float
) -> None:
    """Labels rows on the y axis, the first on top: all of them, or as many as fit.

    Args:
        axes: Where row i is around y = i.
        names: One per row.
        badness: Where not all fit, the worst rows get a label first.
        height_inches: The height of all rows.
    """
    fitting = max(1, int(height_inches / LABEL_INCHES))
    distance = -(-len(names) // fitting)
    chosen: list[int] = []
    for row in sorted(range(len(names)), key=lambda i: (-badness[i], i)):
        if all(abs(row - other) >= distance for other in chosen):
            chosen.append(row)
    chosen.sort()
    axes.set_yticks(chosen, [literal(shortened(names[row])) for row in chosen], fontsize=8.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
