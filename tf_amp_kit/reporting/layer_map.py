"""Which layers lose what: shares as colours, layers against kinds of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics
from tf_amp_kit.reporting.canvas import clamped, label_rows, say_nothing_there
from tf_amp_kit.tables import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["LAYER_KINDS", "LayerRow", "draw_map", "layer_rows", "legend_entries", "map_inches"]

LAYER_KINDS: Final = ("output", "gradient", "weight", "weight_gradient")

# Shares from each of these on have a colour of their own; zero is none of them.
_CLASSES: Final = (np.finfo(np.float64).tiny, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_CLASS_LABELS: Final = (
    "below 0.01 %",
    "0.01 % to 0.1 %",
    "0.1 % to 1 %",
    "1 % to 10 %",
    "10 % and more",
)
# Of `cividis_r`, whose lightness falls steadily. Its lightest part is left out: in
# grey that would be as white as zero.
_SHADES: Final = (0.22, 0.42, 0.6, 0.8, 1.0)
_FIRST_DARK: Final = 2
_ZERO_COLOUR: Final = "white"
_ABSENT_STYLE: Final[dict[str, Any]] = {
    "facecolor": "#E4E4E4",
    "edgecolor": "#B5B5B5",
    "hatch": "////",
}

# With more rows, shares are no longer written into the cells, and cells lose their frames.
_MOST_WRITTEN: Final = 30
_MOST_FRAMED: Final = 80


@dataclass
class LayerRow:
    """The tensors of one layer.

    Attributes:
        path: The layer's path.
        tensors: By kind; a layer has several weights, and may have several outputs.
    """

    path: str
    tensors: dict[str, list[TensorNumerics]] = field(default_factory=dict)

    def share(self, kind: str, counter: str) -> float:
        """Returns the share of all elements of a kind, 0 to 1; NaN if there are none.

        Args:
            kind: One of `LAYER_KINDS`.
            counter: The `Judgement`'s attribute that counts, `"num_overflow"` for example.
        """
        judgements = [one.judgement for one in self.tensors.get(kind, ())]
        num_nonzero = sum(one.num_nonzero for one in judgements)
        counted: int = sum(getattr(one, counter) for one in judgements)
        return counted / num_nonzero if num_nonzero else math.nan

    def has_nonfinite(self, kind: str) -> bool:
        """Tells whether there was a NaN or Inf in float32 already."""
        statistics = [one.statistics for one in self.tensors.get(kind, ())]
        return any(one.num_nan or one.num_infinite for one in statistics)


def layer_rows(report: NumericsReport) -> list[LayerRow]:
    """Sorts a report's tensors by layer, in the order of execution.

    A weight belongs to the innermost layer around it that has an output. Layers of
    which only weights were seen come last.
    """
    rows: dict[str, LayerRow] = {}
    for kind in LAYER_KINDS:
        for one in report.of_kind(kind):
            path = one.path if kind in ("output", "gradient") else _owner(one.path, rows)
            row = rows.setdefault(path, LayerRow(path))
            row.tensors.setdefault(kind, []).append(one)
    return list(rows.values())


def map_inches(num_rows: int) -> float:
    """Gives the height of a map: it grows with its rows as far as a page goes."""
    return clamped(0.24 * num_rows, 1.0, 10.5)


def draw_map(axes: Axes, rows: Sequence[LayerRow], counter: str, title: str) -> None:
    """Draws the shares of one kind of loss.

    Args:
        axes: The axes.
        rows: The layers, the first on top.
        counter: The `Judgement`'s attribute that counts, `"num_overflow"` for example.
        title: What is lost.
    """
    from matplotlib.colors import BoundaryNorm

    axes.set_title(title, weight="bold")
    axes.spines[:].set(visible=True, color="#8C8C8C")
    axes.tick_params(length=0)
    if not rows:
        say_nothing_there(axes, "no layer was measured")
        axes.set(xticks=[], yticks=[])
        return
    shares = np.array([[row.share(kind, counter) for kind in LAYER_KINDS] for row in rows])
    axes.patch.set(**_ABSENT_STYLE, linewidth=0)
    axes.pcolormesh(
        np.arange(len(LAYER_KINDS) + 1) - 0.5,
        np.arange(len(rows) + 1) - 0.5,
        np.ma.masked_invalid(shares),
        cmap=_colour_map(),
        norm=BoundaryNorm(_CLASSES, len(_SHADES)),
        edgecolors="#C4C4C4" if len(rows) <= _MOST_FRAMED else "none",
        linewidth=0.6,
    )
    if len(rows) <= _MOST_WRITTEN:
        _write_shares(axes, shares)
    _mark_nonfinite(axes, rows)
    for x in range(1, len(LAYER_KINDS)):
        axes.axvline(x - 0.5, color="#8C8C8C", lw=0.8)
    names = [row.path or "(model)" for row in rows]
    label_rows(axes, names, [_badness(row) for row in rows], map_inches(len(rows)))
    kinds = [kind.replace("_", "\n") for kind in LAYER_KINDS]
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_xlim(-0.5, len(kinds) - 0.5)


def legend_entries() -> dict[str, Any]:
    """Gives the legend's handles by their labels."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    colours = _colour_map()
    return {
        "none": Patch(facecolor=_ZERO_COLOUR, edgecolor="#8C8C8C"),
        **{label: Patch(color=colours(i)) for i, label in enumerate(_CLASS_LABELS)},
        "nothing to judge": Patch(**_ABSENT_STYLE),
        "NaN or Inf in float32": Line2D([], [], **_nonfinite_style(), linestyle="none"),
    }


def _owner(weight_path: str, rows: dict[str, LayerRow]) -> str:
    owner = weight_path.rpartition("/")[0]
    path = owner
    while path and path not in rows:
        path = path.rpartition("/")[0]
    return path or owner


def _colour_map() -> Any:
    import matplotlib as mpl
    from matplotlib.colors import ListedColormap

    shades = mpl.colormaps["cividis_r"](_SHADES)
    return ListedColormap(shades).with_extremes(under=_ZERO_COLOUR)


def _badness(row: LayerRow) -> float:
    # The same in both maps, so that both have the same labels.
    counters = ("num_underflow", "num_overflow")
    shares = [row.share(kind, counter) for kind in LAYER_KINDS for counter in counters]
    has_nonfinite = any(map(row.has_nonfinite, LAYER_KINDS))
    return max([float(has_nonfinite), *(one for one in shares if not math.isnan(one))])


def _write_shares(axes: Axes, shares: NDArray[np.float64]) -> None:
    for (row, column), share in np.ndenumerate(shares):
        if not math.isnan(share):
            is_dark = share >= _CLASSES[_FIRST_DARK]
            colour = "white" if is_dark else "black"
            text = percent(float(share))
            axes.text(column, row, text, ha="center", va="center", size=8, color=colour)


def _nonfinite_style() -> dict[str, Any]:
    return {
        "marker": "X",
        "markersize": 6.5,
        "markerfacecolor": "#D55E00",
        "markeredgecolor": "white",
        "markeredgewidth": 0.7,
    }


def _mark_nonfinite(axes: Axes, rows: Sequence[LayerRow]) -> None:
    # In a corner of the cell, beside its number.
    places = [
        (column + 0.4, row)
        for row, layer in enumerate(rows)
        for column, kind in enumerate(LAYER_KINDS)
        if layer.has_nonfinite(kind)
    ]
    if places:
        axes.plot(*zip(*places, strict=True), ls="none", **_nonfinite_style())
