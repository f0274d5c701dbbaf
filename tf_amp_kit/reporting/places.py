"""Where in a repository a finding is shown, and what is said there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath

from tf_amp_kit.inspection.findings import Finding
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.source import Source

__all__ = ["Place", "Places", "words"]


@dataclass(frozen=True)
class Place:
    """A line of a file.

    Attributes:
        file: The file's path with forward slashes: relative to the root if it is
            inside of it, else absolute.
        line: The line's number, from 1.
        text: The line itself, stripped, or empty.
        is_inside: Whether the file is inside the root.
        is_own: Whether it is the finding's own line, not the model's.
    """

    file: str
    line: int
    text: str
    is_inside: bool
    is_own: bool


@dataclass(frozen=True)
class Places:
    """Finds the line to show a finding at.

    Attributes:
        root: The folder that files are told relative to, absolute.
        model: Where the model comes from: the first line of its builder, or its file.
            Findings are shown there that have no line inside the root: GitHub refuses
            a whole SARIF file for one result without a file and a line.

    Example:

    >>> from tf_amp_kit.inspection.findings import finding
    >>> found = finding("AMP102", "a", "A", "returns float64", "cast it")
    >>> Places("/src", Source("/src/net.py", 3, "def build():")).of(found).file
    'net.py'
    """

    root: str
    model: Source | None = None

    def of(self, one: Finding) -> Place | None:
        """Returns where to show a finding; None if neither it nor the model has a line."""
        known = [
            self._place(source, is_own=source is one.source)
            for source in (one.source, self.model)
            # Code that was compiled from a string has a name such as <string>.
            if source and not source.file.startswith("<")
        ]
        inside = [place for place in known if place.is_inside]
        return next(iter(inside or known), None)

    def _place(self, source: Source, *, is_own: bool) -> Place:
        path = PurePath(os.path.abspath(source.file))
        is_inside = path.is_relative_to(self.root)
        file = path.relative_to(self.root) if is_inside else path
        return Place(file.as_posix(), source.line, source.text, is_inside, is_own)


def words(one: Finding, model_name: str, place: Place | None) -> str:
    """Says in lines what a finding says, without its code and severity.

    Args:
        one: The finding.
        model_name: What stands for the path of the model itself.
        place: Where it is shown. If that is not its own line, the own one is named.
    """
    who = f"{one.path or model_name} ({one.layer_class})"
    lines = [f"{who} {one.message.rstrip('.')}."]
    if one.source and not (place and place.is_own):
        lines.append(f"At {one.source}: {one.source.text}")
    lines.append(f"Fix: {one.fix}")
    if one.affects:
        lines.append(f"Touches: {some(one.affects)}")
    return "\n".join(lines)
