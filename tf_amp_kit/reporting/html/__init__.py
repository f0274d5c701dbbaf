"""One page of HTML from any set of records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tf_amp_kit.comparison.memory.record import MemoryEstimate
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.errors import InputsError
from tf_amp_kit.hardware import Hardware
from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport
from tf_amp_kit.inspection.numerics.pairs import GradientComparison
from tf_amp_kit.inspection.numerics.report import NumericsReport
from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.reporting.html import circumstances, comparisons, inspections
from tf_amp_kit.reporting.html.page import render_page
from tf_amp_kit.reporting.html.views import Section

__all__ = ["section_of", "write_report", "write_sections"]

_MAKERS: Final[dict[type, Callable[[Any], Section]]] = {
    AuditReport: inspections.audit,
    NumericsReport: inspections.numerics,
    GradientComparison: inspections.gradients,
    NonFiniteReport: inspections.nonfinite,
    PrecisionPlan: comparisons.plan,
    ComparisonReport: comparisons.comparison,
    MemoryEstimate: comparisons.memory,
    Hardware: circumstances.hardware,
}


def write_report(records: Any, path: str | os.PathLike[str]) -> None:
    """Writes records as one HTML page, for people to look at and to pass on.

    The page says on top whether the model is fine. Tables can be sorted and filtered, a
    search goes through the layers of all of them, findings show their line of code, and
    figures are drawn where matplotlib is installed. It needs no network and no other file;
    without JavaScript it can still be read.

    Args:
        records: What `audit_layer_dtypes`, `measure_numerics`, `compare_gradients`,
            `find_nonfinite`, `plan_precision`, `compare_precisions`, `estimate_memory` and
            `detect_hardware` return, one or several, in the order of the page.
        path: The file; its folder has to be there. An existing file is replaced.

    Raises:
        InputsError: If something is no record, or if there is none.
        MissingExtraError: If jinja2 cannot be imported.
        OSError: If the file cannot be written.

    Example:

    >>> import pathlib, tempfile
    >>> import tf_amp_kit as amp
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "report.html"
    >>> amp.write_report(amp.detect_hardware(), file)
    >>> file.read_text().startswith("<!doctype html>")
    True
    >>> folder.cleanup()
    """
    several = records if isinstance(records, Iterable) else [records]
    write_sections([section_of(one) for one in several], path)


def section_of(record: Any) -> Section:
    """Returns what a page shows of a record.

    Raises:
        InputsError: If it is none.
    """
    maker = next((make for kind, make in _MAKERS.items() if isinstance(record, kind)), None)
    if maker is None:
        known = ", ".join(sorted(kind.__name__ for kind in _MAKERS))
        raise InputsError(f"Expected one of {known}. Received: {record!r:.200}.")
    return maker(record)


def write_sections(sections: Sequence[Section], path: str | os.PathLike[str]) -> None:
    """Writes sections as one page.

    Raises:
        InputsError: If there is none.
        MissingExtraError: If jinja2 cannot be imported.
        OSError: If the file cannot be written.
    """
    if not sections:
        raise InputsError("There is nothing to write. Expected at least one record. Received: [].")
    Path(path).write_text(render_page(sections), encoding="utf-8")
