"""The record that an audit returns, and how it prints itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from tf_amp_kit.errors import FindingsError
from tf_amp_kit.inspection.findings import SEVERITIES, Finding, at_least
from tf_amp_kit.tables import html_table, render_table, wrapped

__all__ = ["AUDIT_COLUMNS", "AuditReport", "LayerRow"]

AUDIT_COLUMNS: Final = ("Layer", "Class", "Policy", "Output", "Compute", "Findings")
# What tells layers apart stays in one piece; dtypes and codes wrap well.
_KEPT_WIDTHS: Final = {"Layer": 36, "Class": 24, "Policy": 16}
_MAX_EXAMPLES: Final = 3


@dataclass(frozen=True)
class LayerRow:
    """What one layer was told, what it returned and what it ran.

    Attributes:
        path: The layer's path; empty for the model itself.
        layer_class: The class name.
        policy: The dtype policy's name.
        output_dtypes: Dtypes of the tensors that it returned; empty if it was
            never called.
        compute_dtypes: Float dtypes of its own matrix products, or else of its
            own operations; empty for containers.
        remark: Why it is not half where that is no finding, or empty.
        findings: Codes of the findings about it.
    """

    path: str
    layer_class: str
    policy: str
    output_dtypes: tuple[str, ...]
    compute_dtypes: tuple[str, ...]
    remark: str = ""
    findings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return {
            "path": self.path,
            "layer_class": self.layer_class,
            "policy": self.policy,
            "output_dtypes": list(self.output_dtypes),
            "compute_dtypes": list(self.compute_dtypes),
            "remark": self.remark,
            "findings": list(self.findings),
        }


@dataclass(frozen=True, repr=False)
class AuditReport:
    """What `audit_layer_dtypes` found. Printing it gives the table and the findings.

    Attributes:
        model_name: The model's name.
        precision: The expected precision, `"bfloat16"` for example.
        findings: All findings that are not ignored, errors first.
        rows: One row per layer, the model's own first.
        remarks: What limits the audit, or sums it up, in sentences.

    Example:

    >>> report = AuditReport("net", "bfloat16", findings=(), rows=())
    >>> report.raise_for_findings()
    >>> print(report)
    Audit of 'net', expected to compute in bfloat16
    <BLANKLINE>
    No findings.
    """

    model_name: str
    precision: str
    findings: tuple[Finding, ...]
    rows: tuple[LayerRow, ...]
    remarks: tuple[str, ...] = ()

    def raise_for_findings(self, severity: str = "warning") -> None:
        """Raises if there are findings at least this grave.

        For a test that keeps a model clean.

        Args:
            severity: `"error"`, `"warning"` or `"note"`.

        Raises:
            FindingsError: With up to three of the findings.
            ValueError: If `severity` is none of the three.
        """
        grave = self.findings_at_least(severity)
        if not grave:
            return
        shown = "\n".join(f"  {one}" for one in grave[:_MAX_EXAMPLES])
        rest = f"\n  and {len(grave) - _MAX_EXAMPLES} more" if len(grave) > _MAX_EXAMPLES else ""
        raise FindingsError(f"The audit of {self.model_name!r} found:\n{shown}{rest}")

    def findings_at_least(self, severity: str = "warning") -> tuple[Finding, ...]:
        """Returns the findings that are at least this grave.

        Args:
            severity: `"error"`, `"warning"` or `"note"`.

        Returns:
            The findings.

        Raises:
            ValueError: If `severity` is none of the three.
        """
        if severity not in SEVERITIES:
            raise ValueError(
                f"Unknown severity. Expected one of {list(SEVERITIES)}. "
                f"Received: severity={severity!r}."
            )
        return tuple(one for one in self.findings if one.severity in at_least(severity))

    def summary(self) -> str:
        """Returns how many findings of each severity there are; empty for none."""
        counts = Counter(one.severity for one in self.findings)
        return ", ".join(
            f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}"
            for name in SEVERITIES
            if counts[name]
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as dictionaries, lists and strings."""
        return {
            "model_name": self.model_name,
            "precision": self.precision,
            "findings": [one.to_dict() for one in self.findings],
            "rows": [row.to_dict() for row in self.rows],
            "remarks": list(self.remarks),
        }

    def to_json(self) -> str:
        """Returns `to_dict()` as JSON, indented."""
        return json.dumps(self.to_dict(), indent=2)

    def __repr__(self) -> str:
        counts = f"{len(self.rows)} layers, {self.summary() or 'no findings'}"
        return f"<AuditReport of {self.model_name!r} in {self.precision}: {counts}>"

    def __str__(self) -> str:
        parts = [f"Audit of {self.model_name!r}, expected to compute in {self.precision}"]
        if self.rows:
            parts.append(render_table(AUDIT_COLUMNS, list(self.cells()), kept_widths=_KEPT_WIDTHS))
        parts.extend(self.remarks)
        grave = self.findings_at_least("warning")
        parts.extend(_long_form(one) for one in grave)
        notes = [one for one in self.findings if one not in grave]
        parts.extend(_short_form(code, notes) for code in dict.fromkeys(one.code for one in notes))
        if not self.findings:
            parts.append("No findings.")
        if self.findings:
            parts.append(self.summary())
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        title = f"Audit of {self.model_name!r}, expected to compute in {self.precision}"
        table = html_table(AUDIT_COLUMNS, list(self.cells()), title=title)
        findings = html_table(
            ("Code", "Severity", "Layer", "What happens", "Line", "Fix"),
            [
                (one.code, one.severity, _shown(one.path), one.message, _line(one), one.fix)
                for one in self.findings
            ],
        )
        remarks = "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)
        return table + remarks + (findings if self.findings else "<p>No findings.</p>")

    def cells(self) -> Iterable[tuple[str, ...]]:
        """Yields the rows of the table, as text."""
        for row in self.rows:
            compute = ", ".join(row.compute_dtypes) or "-"
            yield (
                _shown(row.path),
                row.layer_class,
                row.policy,
                ", ".join(row.output_dtypes) or "not called",
                f"{compute} ({row.remark})" if row.remark else compute,
                " ".join(row.findings),
            )


def _shown(path: str) -> str:
    return path or "(model)"


def _line(one: Finding) -> str:
    return f"{one.source}: {one.source.text}" if one.source else ""


def _short_form(code: str, notes: Iterable[Finding]) -> str:
    """Tells the notes of one code together: they ask for nothing."""
    same = [one for one in notes if one.code == code]
    first = same[0]
    who = f"{_shown(first.path)} ({first.layer_class})"
    lines = [wrapped(f"{code} note: {who} {first.message.rstrip('.')}.")]
    others = tuple(dict.fromkeys(one.path for one in same[1:] if one.path != first.path))
    if others:
        lines.append(wrapped(f"    Likewise: {_some(others)}"))
    return "\n".join(lines)


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(map(_shown, paths[:_MAX_EXAMPLES]))
    more = len(paths) - _MAX_EXAMPLES
    return f"{shown} and {more} more" if more > 0 else shown


def _long_form(one: Finding) -> str:
    who = f"{_shown(one.path)} ({one.layer_class})"
    lines = [wrapped(f"{one.code} {one.severity}: {who} {one.message.rstrip('.')}.")]
    if one.source:
        lines.append(f"    {one.source}\n        {one.source.text}")
    lines.append(wrapped(f"    Fix: {one.fix}"))
    if one.affects:
        lines.append(wrapped(f"    Touches: {_some(one.affects)}"))
    return "\n".join(lines)
