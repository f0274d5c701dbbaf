"""What a script was given, told in one short text when it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.tables import render_table, some, wrapped

__all__ = ["ModelSummary", "RunSummary"]

_NUM_SHOWN: Final = 10
_NOTHING: Final = ""


@dataclass(frozen=True)
class ModelSummary:
    """What one model of a script got.

    Attributes:
        name: The model's name.
        num_half: How many of its layers with weights compute in the precision asked for.
        num_layers: How many layers with weights it has; 0 if it was never built.
        pinned: The paths of the layers that were pinned in float32.
        num_steps: Steps of its optimizer, skipped ones too; None if nobody counts them.
        skipped_steps: How many of them were skipped; None likewise.
        loss_scale: The last loss scale; None without loss scaling.
        audit: What the audit found; None if it was not asked for.
        notes: What else there is to know, in sentences.
    """

    name: str
    num_half: int = 0
    num_layers: int = 0
    pinned: tuple[str, ...] = ()
    num_steps: int | None = None
    skipped_steps: int | None = None
    loss_scale: float | None = None
    audit: AuditReport | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunSummary:
    """What a script was given, and what came of it.

    Attributes:
        requested: The precision as the user wrote it.
        precision: The precision that it is.
        level: `"O0"` to `"O3"`.
        models: The models that were compiled, in that order.
        notes: What there is to know of the script as a whole, in sentences.
        report: The file of the report; None if there is none.
        exit_code: What the script ended with.

    Example:

    >>> model = ModelSummary("net", num_half=2, num_layers=3, pinned=("head",))
    >>> print(RunSummary("bf16", "bfloat16", "O1", (model,)))
    Ran in bfloat16, level O1
    <BLANKLINE>
    Layers with weights, by model:
    <BLANKLINE>
    Model  In bfloat16  Pinned
    --------------------------
    net    2 of 3       head
    """

    requested: str
    precision: str
    level: str
    models: tuple[ModelSummary, ...] = ()
    notes: tuple[str, ...] = ()
    report: str | None = None
    exit_code: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as dictionaries, lists, strings and numbers."""
        return {
            **vars(self),
            "models": [_as_dict(one) for one in self.models],
            "notes": list(self.notes),
        }

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON, indented."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        asked = "" if self.requested != "auto" else ", as 'auto' picks here"
        parts = [f"Ran in {self.precision}, level {self.level}{asked}"]
        if self.models:
            parts.append(self._table())
        notes = [wrapped(one) for one in self._ends()]
        return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])

    def columns(self) -> dict[str, list[str]]:
        """Returns the cells of the table by column, those that hold anything."""
        columns = {
            "Model": [one.name for one in self.models],
            f"In {self.precision}": [_share(one) for one in self.models],
            "Pinned": [_pinned(one) for one in self.models],
            "Findings": [_findings(one) for one in self.models],
            "Steps": [_count(one.num_steps) for one in self.models],
            "Skipped": [_count(one.skipped_steps) for one in self.models],
            "Loss scale": [
                _NOTHING if one.loss_scale is None else f"{one.loss_scale:g}" for one in self.models
            ],
        }
        return {name: cells for name, cells in columns.items() if any(cells)}

    def _table(self) -> str:
        shown = {name: cells[:_NUM_SHOWN] for name, cells in self.columns().items()}
        rows = list(zip(*shown.values(), strict=True))
        title = "Layers with weights, by model:"
        return render_table(
            [*shown], rows, title=title, right_aligned=("Steps", "Skipped", "Loss scale")
        )

    def _ends(self) -> Iterator[str]:
        more = len(self.models) - _NUM_SHOWN
        if more > 0:
            yield f"... and {more} more models."
        yield from self.sentences()
        if self.report is not None:
            yield f"Report: {self.report}"

    def sentences(self) -> Iterator[str]:
        """Yields what there is to know beside the table."""
        if self.exit_code:
            yield f"The script ended with exit code {self.exit_code}."
        if self.report is None and any(one.audit and one.audit.findings for one in self.models):
            yield "--report FILE shows what was found, with lines and fixes."
        grouped: dict[str, list[str]] = {}
        for one in self.models:
            for note in one.notes:
                grouped.setdefault(note, []).append(one.name)
        for note, names in grouped.items():
            yield f"{some(names)}: {note}"
        yield from self.notes


def _as_dict(one: ModelSummary) -> dict[str, Any]:
    audit = None if one.audit is None else one.audit.to_dict()
    return {**vars(one), "pinned": list(one.pinned), "notes": list(one.notes), "audit": audit}


def _share(one: ModelSummary) -> str:
    return f"{one.num_half} of {one.num_layers}" if one.num_layers else "never built"


def _pinned(one: ModelSummary) -> str:
    return some(one.pinned).replace("'", "")


def _findings(one: ModelSummary) -> str:
    if one.audit is None:
        return _NOTHING
    codes = dict.fromkeys(finding.code for finding in one.audit.findings)
    return ", ".join(codes) or "none"


def _count(value: int | None) -> str:
    return _NOTHING if value is None else f"{value}"
