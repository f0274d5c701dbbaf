"""The part of a report that tells of a launched script."""

from __future__ import annotations

from tf_amp_kit.launcher.summary import RunSummary
from tf_amp_kit.reporting.html.views import FINE, LOOK, Section, Table

__all__ = ["section_of_run"]


def section_of_run(summary: RunSummary) -> Section:
    """Shows what a script was given, and what came of it."""
    headline, *_ = str(summary).splitlines()
    sentences = list(summary.sentences())
    columns = summary.columns()
    rows = list(zip(*columns.values(), strict=True))
    tables = [Table("Models", [*columns], rows)] if summary.models else []
    return Section("Run", LOOK if sentences else FINE, f"{headline}.", sentences, tables)
