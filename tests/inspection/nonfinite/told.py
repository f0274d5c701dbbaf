"""What `find_nonfinite` tells of a planted fault, next to what it must tell."""

from __future__ import annotations

import os
from typing import Any

import tf_amp_kit as amp
from tf_amp_kit.inspection.nonfinite.find import find_nonfinite
from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport

from .planted import Planted
from .running import loss_scale_for

NOTHING = "nothing"


def told(planted: Planted) -> str:
    """Build the model with the fault, and return what the report says of it."""
    with amp.amp_scope(planted.precision):
        return told_of(planted.build(), planted.precision)


def told_of(built: Any, precision: str) -> str:
    """Return the origin of a model's report as one text."""
    return told_by(
        find_nonfinite(built.model, built.data, loss_scale=loss_scale_for(precision), verbose=0)
    )


def told_by(report: NonFiniteReport) -> str:
    """Return the origin of a report as one text."""
    origin = report.origin
    if origin is None:
        return NOTHING
    place = (origin.source.file, origin.source.line) if origin.source else ("", 0)
    return _text(origin.path, origin.operation, origin.direction, *place)


def truth(planted: Planted) -> str:
    """Return what the report must say."""
    fault = planted.fault
    return _text(planted.path, fault.operation, fault.direction, *planted.source)


def _text(path: str, operation: str, direction: str, file: str, line: int) -> str:
    return f"{direction} {operation} in {path} at {os.path.basename(file)}:{line}"
