"""What one precision plan does otherwise than another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.comparison.planning.record.parts import METRICS, NumberRecord
from tf_amp_kit.comparison.words import number
from tf_amp_kit.tables import render_table, some, wrapped

if TYPE_CHECKING:
    from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan

__all__ = ["Change", "PlanDiff", "compare_plans"]

# Scores are estimates: a few probes leave them uncertain by tens of percent.
_FACTOR: Final = 2.0
_NUM_SHOWN: Final = 10
_SETTINGS: Final = ("model_name", "precision", "metric", "tolerance")
_ERRORS: Final = ("half", "planned", "half_held_out", "planned_held_out")
_FIGURES: Final = (*METRICS, "gradient_cosine")


@dataclass(frozen=True, eq=False)
class Change(NumberRecord):
    """One thing that two plans have differently.

    Attributes:
        name: What: a field of the plans, `planned.output` for example, or a path.
        first: What the first plan has; None if nothing.
        second: What the second has.
    """

    name: str
    first: str | float | None
    second: str | float | None


@dataclass(frozen=True)
class PlanDiff:
    """What two plans do differently. Printing it tells.

    Attributes:
        only_first: Paths that only the first plan pins.
        only_second: Paths that only the second one pins.
        in_both: Paths that both pin.
        changes: Names, settings and errors that differ.
        scores: Scores of units in both that differ by more than a factor of 2; none
            if the plans are in different metrics.

    Example:

    >>> print(PlanDiff(("head",), (), ("body",), (), ()))
    Pinned only by the first plan: 'head'.
    Pinned by both: 'body'.
    """

    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    in_both: tuple[str, ...]
    changes: tuple[Change, ...]
    scores: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second or self.changes or self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as a dictionary for strict JSON; None for what is not finite."""
        return {
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
            "in_both": list(self.in_both),
            "changes": [one.to_dict() for one in self.changes],
            "scores": [one.to_dict() for one in self.scores],
        }

    def to_json(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def __str__(self) -> str:
        return self.text(_NUM_SHOWN)

    def text(self, max_rows: int | None = None) -> str:
        """Lays out what is printed.

        Args:
            max_rows: How many paths and scores to show; None for all.
        """
        parts = ["\n".join(self._sentences(max_rows))]
        if self.changes:
            parts.append(_table("What", self.changes))
        if self.scores:
            parts.append(_table("Score", self.scores[:max_rows]))
            if max_rows is not None and len(self.scores) > max_rows:
                hidden = len(self.scores) - max_rows
                parts[-1] += f"\n... and {hidden} more scores: diff.text() shows all."
        return "\n\n".join(parts)

    def _sentences(self, max_rows: int | None) -> Iterator[str]:
        groups = {
            "only by the first plan": self.only_first,
            "only by the second plan": self.only_second,
            "by both": self.in_both,
        }
        for whom, paths in groups.items():
            if paths:
                count = len(paths) if max_rows is None else max_rows
                yield wrapped(f"Pinned {whom}: {some(paths, count)}.")
        if not any(groups.values()):
            yield "Neither plan pins anything."
        if any(one.name == "metric" for one in self.changes):
            yield "The scores are in different metrics, and not compared."
        if not self:
            yield "Nothing differs."


def compare_plans(first: PrecisionPlan, second: PrecisionPlan) -> PlanDiff:
    """Compares two plans, as `PrecisionPlan.diff` describes it.

    Args:
        first: A plan.
        second: Another one, of the same model or of one with the same paths.
    """
    firsts, seconds = first.pins.paths, second.pins.paths
    return PlanDiff(
        only_first=tuple(path for path in firsts if path not in seconds),
        only_second=tuple(path for path in seconds if path not in firsts),
        in_both=tuple(path for path in firsts if path in seconds),
        changes=tuple(_changes(first, second)),
        scores=tuple(_scores(first, second)) if first.metric == second.metric else (),
    )


def _changes(first: PrecisionPlan, second: PrecisionPlan) -> Iterator[Change]:
    pairs = [(name, getattr(first, name), getattr(second, name)) for name in _SETTINGS]
    for name in _ERRORS:
        one, other = getattr(first, name), getattr(second, name)
        for metric in _FIGURES:
            # Errors that were not measured at all are None, and so are all of their metrics.
            values = getattr(one, metric, None), getattr(other, metric, None)
            pairs.append((f"{name}.{metric}", *values))
    for name, one, other in pairs:
        if one != other and not (_is_nan(one) and _is_nan(other)):
            yield Change(name, one, other)


def _scores(first: PrecisionPlan, second: PrecisionPlan) -> Iterator[Change]:
    others = {unit.path: unit.score for unit in second.units}
    for unit in first.units:
        other = others.get(unit.path)
        if other is not None and _differ(unit.score, other):
            yield Change(unit.path, unit.score, other)


def _differ(one: float, other: float) -> bool:
    if _is_nan(one) or _is_nan(other):
        return _is_nan(one) != _is_nan(other)
    return max(one, other) > _FACTOR * min(one, other)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _table(what: str, changes: tuple[Change, ...]) -> str:
    rows = [(one.name or "(model)", _shown(one.first), _shown(one.second)) for one in changes]
    columns = (what, "First plan", "Second plan")
    kept = dict.fromkeys(columns[1:], 30)
    return render_table(columns, rows, right_aligned=columns[1:], kept_widths=kept)


def _shown(value: str | float | None) -> str:
    return value if isinstance(value, str) else number(value, 6)
