"""What a case expects of an audit, and the comparison with a report."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MARKER = "# PLANTED"
_ERRORS = {"AMP102", "AMP107", "AMP301", "AMP303", "AMP401"}
_NOTES = {"AMP106", "AMP203", "AMP402", "AMP403"}
# A half output is said in addition to whatever a case is about; the level's
# pins and the machine's kernels are not what these cases are about.
ALWAYS_ALLOWED = frozenset({"AMP108", "AMP201", "AMP202"})


def severity_of(code: str) -> str:
    """Return the severity that belongs to a rule's code."""
    if code in _ERRORS:
        return "error"
    return "note" if code in _NOTES else "warning"


def planted_lines(subject: Any) -> tuple[str, list[tuple[int, str]]]:
    """Return the file of a class or function and its marked lines (number, text)."""
    lines, first = inspect.getsourcelines(subject)
    marked = [(first + i, line.strip()) for i, line in enumerate(lines) if MARKER in line]
    assert marked, f"No {MARKER!r} in the source of {subject!r}."
    return inspect.getsourcefile(subject) or "", marked


@dataclass(frozen=True)
class Expected:
    """One finding that must be there.

    Args:
        code: The rule's code, or a tuple of codes that are all right.
        path: The exact path, or None where the rules leave it open.
        below: True if any path at or under `path` will do.
        planted: Class or function whose marked line is the origin, or None.
        says: Patterns, in lower case, that path, class, message or `affects` must contain.
        most: How many findings may answer to this expectation.
    """

    code: str | tuple[str, ...]
    path: str | None = None
    below: bool = False
    planted: Any = None
    says: tuple[str, ...] = ()
    most: int = 1

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes as a tuple."""
        return (self.code,) if isinstance(self.code, str) else self.code

    def problems(self, finding: Any) -> list[str]:
        """Return what is wrong with a finding, as sentences."""
        wrong = []
        if finding.code not in self.codes:
            return [f"code {finding.code}, expected {self.codes}"]
        if finding.severity != severity_of(finding.code):
            wrong.append(f"severity {finding.severity}")
        if self.path is not None and finding.path != self.path:
            inside = self.below and finding.path.startswith(self.path + "/" if self.path else "")
            if not inside:
                wrong.append(f"path {finding.path!r}, expected {self.path!r}")
        told = f"{finding.path} {finding.layer_class} {finding.message} {finding.affects}".lower()
        wrong += [f"{word!r} is not said" for word in self.says if not re.search(word, told)]
        if not finding.message or not finding.fix:
            wrong.append("message or fix is empty")
        if self.planted is not None:
            wrong += self._source_problems(finding.source)
        return wrong

    def _source_problems(self, source: Any) -> list[str]:
        file, marked = planted_lines(self.planted)
        if source is None:
            return ["no source"]
        if os.path.basename(source.file) != os.path.basename(file):
            return [f"file {source.file}, expected {file}"]
        if source.line not in [number for number, _ in marked]:
            return [f"line {source.line} ({source.text!r}), expected one of {marked}"]
        wanted = dict(marked)[source.line].split(MARKER)[0].strip()
        return [] if wanted in source.text else [f"text {source.text!r}, expected {wanted!r}"]


@dataclass(frozen=True)
class Case:
    """A model, how it is audited and what the audit must find.

    Args:
        name: What the case is, used as the test's id.
        build: Function of the half format's name that returns a model.
        expected: The findings; empty for a control.
        halves: The formats for which it holds.
        policy: The global policy; `{half}` stands for the format.
        as_builder: True if the audit gets the builder, not the model.
        audit: Further arguments of the audit, or a function of the format.
        tolerated: Codes that may come with it, at the same place.
    """

    name: str
    build: Callable[[str], Any]
    expected: tuple[Expected, ...] = ()
    halves: tuple[str, ...] = ("float16", "bfloat16")
    policy: str = "mixed_{half}"
    as_builder: bool = False
    audit: Any = field(default_factory=dict)
    tolerated: frozenset[str] = frozenset()


def serious(report: Any) -> list[Any]:
    """Return the warnings and errors of a report outside AMP4xx."""
    return [
        finding
        for finding in report.findings
        if finding.severity != "note" and not finding.code.startswith("AMP4")
    ]


def check(
    report: Any,
    expected: tuple[Expected, ...] = (),
    tolerated: frozenset[str] = frozenset(),
    allowed: frozenset[str] = ALWAYS_ALLOWED,
) -> None:
    """Assert that a report has the expected findings and no others.

    Args:
        report: An `AuditReport`.
        expected: The findings that must be there.
        tolerated: Codes that are fine beside an expected finding, at its path.
        allowed: Codes that are fine anywhere.
    """
    left = [finding for finding in report.findings if finding.severity != "note"]
    paths = set()
    for one in expected:
        verdicts = [(finding, one.problems(finding)) for finding in left]
        hits = [finding for finding, wrong in verdicts if not wrong]
        near = [(f, wrong) for f, wrong in verdicts if f.code in one.codes and wrong]
        assert hits, f"Missing {one}. Nearest: {near}. All: {report.findings}"
        assert len(hits) <= one.most, f"{len(hits)} findings for one mistake: {hits}"
        paths |= {finding.path for finding in hits}
        left = [finding for finding in left if finding not in hits]
    extra = [
        finding
        for finding in left
        if finding.code not in allowed and not (finding.code in tolerated and finding.path in paths)
    ]
    assert not extra, f"Not expected: {extra}"
