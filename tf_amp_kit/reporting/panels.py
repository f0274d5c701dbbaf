"""What the histograms of a record show: which tensors, under which words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tf_amp_kit.errors import SelectionError
from tf_amp_kit.inspection.numerics.pairs import GradientComparison, GradientPair
from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics
from tf_amp_kit.reporting.canvas import HALF_STYLE, WIDE_STYLE
from tf_amp_kit.reporting.exponents import Panel, Series, joined_counts
from tf_amp_kit.tables import percent, some

__all__ = ["comparison_panels", "pair_panel", "report_panels"]

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


def report_panels(
    report: NumericsReport, paths: str | Iterable[str] | None, kinds: str | Iterable[str] | None
) -> list[Panel]:
    """Chooses tensors of a report, as `plot_exponents` describes it.

    Raises:
        SelectionError: If the report has no such tensors, or too many of them.
    """
    chosen = None if kinds is None else _known_kinds(_as_list(kinds))
    if paths is not None:
        return _panels_of_paths(report, _as_list(paths), chosen)
    if chosen is not None:
        return [_joined(f"{_KIND_TITLES[kind]}", report.of_kind(kind)) for kind in chosen]
    gradients = [one for one in report.tensors if one.kind in _GRADIENT_KINDS]
    return [
        _joined("All outputs", report.of_kind("output")),
        _joined("All gradients", gradients),
    ]


def comparison_panels(
    comparison: GradientComparison, paths: str | Iterable[str] | None
) -> list[Panel]:
    """Chooses gradients of a comparison, as `plot_gradients` describes it.

    Raises:
        SelectionError: If the comparison has no such weights, or too many of them.
    """
    if paths is None:
        return [pair_panel(comparison.whole)]
    return [pair_panel(one) for one in _pairs_of(comparison, _as_list(paths))]


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
            f"{one.name}, {one.kind.replace('_', ' ')}",
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
    counts = joined_counts(one.statistics.exponent_counts for one in tensors)
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


def pair_panel(pair: GradientPair, title: str | None = None) -> Panel:
    """Puts the gradients of one pair side by side.

    Args:
        pair: A weight's gradients, or all.
        title: What stands above it; None for the path.
    """
    note = f"vanished in half: {percent(pair.vanished_fraction)}"
    if pair.num_nonfinite:
        note += f"; not drawn: {pair.num_nonfinite} NaN or Inf in half"
    series = (
        Series(pair.float32.exponent_counts, WIDE_STYLE),
        Series(pair.half.exponent_counts, HALF_STYLE),
    )
    return Panel(title or pair.path or "All gradients", note, series)
