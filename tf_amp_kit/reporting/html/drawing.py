"""Figures as SVG inside of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any, Final

from tf_amp_kit.errors import AmpError
from tf_amp_kit.reporting.html.views import Figure

__all__ = ["drawn"]

# A page has a head of its own.
_PROLOG: Final = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA: Final = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_WIDTH: Final = re.compile(r'(<svg[^>]*?) width="[^"]*"', re.DOTALL)
_NAME: Final = re.compile(r' id="([^"]*)"')
_HEIGHT: Final = re.compile(r'(<svg[^>]*?) height="[^"]*"', re.DOTALL)


def drawn(title: str, plot: Callable[..., Any], record: Any) -> Figure:
    """Draws a record, or says why it could not.

    Args:
        title: What the figure shows.
        plot: Takes the record and returns a figure of matplotlib's.
        record: The record.
    """
    try:
        figure = plot(record)
    except AmpError as error:  # matplotlib is an extra, and a record may hold nothing to draw
        return Figure(title, missing=str(error))
    import matplotlib

    buffer = io.StringIO()
    # Text stays text. The salt keeps the names of one figure's parts from another's.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = _PROLOG.sub("", buffer.getvalue(), count=1)
    for pattern, kept in ((_METADATA, ""), (_WIDTH, r"\1"), (_HEIGHT, r"\1")):
        svg = pattern.sub(kept, svg, count=1)
    return Figure(title, _NAME.sub(lambda found: _if_used(found, svg), svg))


def _if_used(name: re.Match[str], svg: str) -> str:
    """Keeps names that the figure itself refers to: figures of a page share the others."""
    return name[0] if f"#{name[1]}" in svg else ""
