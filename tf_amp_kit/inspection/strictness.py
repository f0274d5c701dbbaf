"""What of an audit counts, and how much: the settings of a project."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tf_amp_kit.errors import SettingsError
from tf_amp_kit.inspection.findings import CODES, SEVERITIES, Finding, gravest_first
from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.tables import some

__all__ = ["Strictness"]


@dataclass(frozen=True)
class Strictness:
    """What is left out of an audit, what is graver or milder, and what fails it.

    Attributes:
        ignore: Codes to leave out.
        per_layer_ignore: Codes to leave out of some layers, by a layer's path or a
            pattern for `re.fullmatch` on paths. The model's own path is empty.
        severities: `"error"`, `"warning"` or `"note"` by code, for codes that are to
            have another one than their own.
        fail_on: The least grave severity that counts.

    Raises:
        SettingsError: If a code, a severity or a pattern is none, or of another type.

    Example:

    >>> Strictness(ignore=("AMP203",), severities={"AMP106": "warning"}).fail_on
    'warning'
    """

    ignore: Sequence[str] = ()
    per_layer_ignore: Mapping[str, Sequence[str]] = field(default_factory=dict)
    severities: Mapping[str, str] = field(default_factory=dict)
    fail_on: str = "warning"

    def __post_init__(self) -> None:
        _check_codes("ignore", self.ignore)
        _check_mapping("per_layer_ignore", self.per_layer_ignore)
        for pattern, codes in self.per_layer_ignore.items():
            _check_pattern(pattern)
            _check_codes(f"per_layer_ignore of {pattern!r}", codes)
        _check_mapping("severities", self.severities)
        _check_codes("severities", list(self.severities))
        for code, severity in self.severities.items():
            _check_severity(f"severities of {code}", severity)
        _check_severity("fail_on", self.fail_on)

    def with_options(self, *, ignore: Sequence[str], fail_on: str | None) -> Strictness:
        """Returns settings with more codes to ignore, and another severity to fail on.

        Args:
            ignore: Codes to leave out, too.
            fail_on: What counts instead; None leaves it.
        """
        return replace(self, ignore=(*self.ignore, *ignore), fail_on=fail_on or self.fail_on)

    def applied_to(self, report: AuditReport) -> AuditReport:
        """Returns the report as these settings see it; the given one stays as it is.

        Args:
            report: What `audit_layer_dtypes` returned.

        Returns:
            A report without what is ignored, with the severities asked for, the
            gravest first, and a remark that counts what was left out.
        """
        left_out = [one for one in report.findings if self._is_ignored(one)]
        kept = [
            replace(one, severity=self.severities.get(one.code, one.severity))
            for one in report.findings
            if not self._is_ignored(one)
        ]
        told = {(one.path, one.code) for one in kept}
        rows = [
            replace(row, findings=tuple(c for c in row.findings if (row.path, c) in told))
            for row in report.rows
        ]
        remarks = (*report.remarks, _said_of(left_out)) if left_out else report.remarks
        return replace(report, findings=gravest_first(kept), rows=tuple(rows), remarks=remarks)

    def _is_ignored(self, one: Finding) -> bool:
        return one.code in self.ignore or any(
            one.code in codes and (one.path == pattern or re.fullmatch(pattern, one.path))
            for pattern, codes in self.per_layer_ignore.items()
        )


def _said_of(left_out: Sequence[Finding]) -> str:
    counts = Counter(one.code for one in left_out)
    parts = ", ".join(f"{counts[code]} {code}" for code in sorted(counts))
    return f"Left out as asked: {parts}."


def _check_codes(key: str, codes: Any) -> None:
    if not isinstance(codes, list | tuple):
        raise SettingsError(
            f"`{key}` is no list. Expected a list of codes such as AMP203. Received: {codes!r}."
        )
    for code in codes:
        if not isinstance(code, str) or code not in CODES:
            raise SettingsError(
                f"Unknown finding code in `{key}`. Expected some of {some(CODES)}. "
                f"Received: {code!r}."
            )


def _check_severity(key: str, severity: Any) -> None:
    if severity not in SEVERITIES:
        raise SettingsError(
            f"Unknown severity in `{key}`. Expected one of {list(SEVERITIES)}. "
            f"Received: {severity!r}."
        )


def _check_mapping(key: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise SettingsError(f"`{key}` is no table. Received: {value!r}.")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise SettingsError(
            f"A pattern in `per_layer_ignore` is no regular expression: {error}. Expected a "
            f"layer's path or a pattern, 'encoder/.*' for example. Received: {pattern!r}."
        ) from None
