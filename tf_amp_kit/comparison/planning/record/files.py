"""Precision plans as files: strict JSON, keyed by layer path."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from tf_amp_kit.comparison.planning.record.parts import METRICS, UnitEffect
from tf_amp_kit.comparison.stored import read_as, read_file, written
from tf_amp_kit.errors import PlanError
from tf_amp_kit.formats import HALF_PRECISIONS
from tf_amp_kit.precision.pinning.pins import PLAN_FORMAT, Pin, Pins

if TYPE_CHECKING:
    from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan

__all__ = ["read_fields", "write_plan"]


def write_plan(plan: PrecisionPlan, path: str | os.PathLike[str]) -> None:
    """Writes a plan; an existing file is replaced.

    Args:
        plan: The plan.
        path: Where to.
    """
    units = {unit.path: written(unit) for unit in plan.units}
    for unit in units.values():
        del unit["path"]
    others = [one.name for one in fields(plan) if one.name not in ("units", "pins")]
    content = {
        "format": PLAN_FORMAT[0],
        "version": PLAN_FORMAT[1],
        **{name: written(getattr(plan, name)) for name in others},
        "units": units,
        "pins": plan.pins.by_path(),
        "remarks": list(plan.pins.remarks),
    }
    text = json.dumps(content, indent=2, allow_nan=False)
    Path(path).write_text(f"{text}\n", encoding="utf-8")


def read_fields(kind: type[PrecisionPlan], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads what `write_plan` wrote.

    Args:
        kind: The class of the plan.
        path: The file.

    Returns:
        The fields of the plan, by name.

    Raises:
        PlanError: If the file holds something else.
        OSError: If it cannot be read.
    """
    return read_file(
        path,
        lambda content: _plan_fields(kind, content),
        expected="The file holds no precision plan. Expected JSON that `PrecisionPlan.save` "
        f"wrote, version {PLAN_FORMAT[1]}.",
        error_class=PlanError,
    )


def _plan_fields(kind: type[PrecisionPlan], content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise TypeError("no JSON object")
    if (content.get("format"), content.get("version")) != PLAN_FORMAT:
        raise ValueError(f"format {content.get('format')!r}, version {content.get('version')!r}")
    hints = get_type_hints(kind)
    units = [{"path": path, **unit} for path, unit in content["units"].items()]
    found = {
        name: read_as(content[name], hint, name)
        for name, hint in hints.items()
        if name not in ("units", "pins")
    }
    found["units"] = read_as(units, tuple[UnitEffect, ...], "units")
    found["pins"] = _pins(found["model_name"], content)
    if found["metric"] not in METRICS or found["precision"] not in HALF_PRECISIONS:
        raise ValueError(f"metric {found['metric']!r}, precision {found['precision']!r}")
    for errors in (found["half"], found["planned"], found["planned_held_out"]):
        if errors is not None and getattr(errors, found["metric"]) is None:
            raise ValueError(f"no error in the {found['metric']}")
    return found


def _pins(model_name: str, content: Mapping[str, Any]) -> Pins:
    pins = read_as(
        [{"path": path, "in_files": "", **pin} for path, pin in content["pins"].items()],
        tuple[Pin, ...],
        "pins",
    )
    return Pins(model_name, pins, read_as(content["remarks"], tuple[str, ...], "remarks"))
