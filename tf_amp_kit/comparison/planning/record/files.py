"""Precision plans as files: strict JSON, keyed by layer path."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

from tf_amp_kit.comparison.planning.record.parts import METRICS, UnitEffect, without_numpy
from tf_amp_kit.errors import PlanError
from tf_amp_kit.formats import HALF_PRECISIONS
from tf_amp_kit.precision.pinning.pins import PLAN_FORMAT, Pin, Pins

if TYPE_CHECKING:
    from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan

__all__ = ["read_fields", "write_plan"]

# Strict JSON has no numbers for these.
_WORDS: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def write_plan(plan: PrecisionPlan, path: str | os.PathLike[str]) -> None:
    """Writes a plan; an existing file is replaced.

    Args:
        plan: The plan.
        path: Where to.
    """
    units = {unit.path: _written(unit) for unit in plan.units}
    for unit in units.values():
        del unit["path"]
    content = {
        "format": PLAN_FORMAT[0],
        "version": PLAN_FORMAT[1],
        **_written(plan),
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
    try:
        return _plan_fields(kind, json.loads(Path(path).read_text(encoding="utf-8")))
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise PlanError(
            "The file holds no precision plan. Expected JSON that `PrecisionPlan.save` wrote, "
            f"version {PLAN_FORMAT[1]}. Received: {str(path)!r} ({_what_is_wrong(error)})."
        ) from error


def _what_is_wrong(error: BaseException) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]


def _plan_fields(kind: type[PrecisionPlan], content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise TypeError("no JSON object")
    if (content.get("format"), content.get("version")) != PLAN_FORMAT:
        raise ValueError(f"format {content.get('format')!r}, version {content.get('version')!r}")
    hints = get_type_hints(kind)
    units = [{"path": path, **unit} for path, unit in content["units"].items()]
    found = {
        name: _read(content[name], hint, name)
        for name, hint in hints.items()
        if name not in ("units", "pins")
    }
    found["units"] = _read(units, tuple[UnitEffect, ...], "units")
    found["pins"] = _pins(found["model_name"], content)
    if found["metric"] not in METRICS or found["precision"] not in HALF_PRECISIONS:
        raise ValueError(f"metric {found['metric']!r}, precision {found['precision']!r}")
    for errors in (found["half"], found["planned"], found["planned_held_out"]):
        if errors is not None and getattr(errors, found["metric"]) is None:
            raise ValueError(f"no error in the {found['metric']}")
    return found


def _pins(model_name: str, content: Mapping[str, Any]) -> Pins:
    pins = _read(
        [{"path": path, "in_files": "", **pin} for path, pin in content["pins"].items()],
        tuple[Pin, ...],
        "pins",
    )
    return Pins(model_name, pins, _read(content["remarks"], tuple[str, ...], "remarks"))


def _written(value: Any) -> Any:
    """Turns records into dictionaries, and numbers that are not finite into words."""
    if is_dataclass(value) and not isinstance(value, Pins):
        return {one.name: _written(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    plain = without_numpy(value)
    # What JSON in Python calls them, as text.
    is_strict = not isinstance(plain, float) or math.isfinite(plain)
    return plain if is_strict else json.dumps(plain)


def _read(value: Any, hint: Any, name: str) -> Any:
    """Gives a value the type that a record declares for it.

    Raises:
        TypeError: If it has another one; the message has the name.
        KeyError: If a record lacks a field.
    """
    alternatives = get_args(hint)
    if NoneType in alternatives:
        (inner,) = (one for one in alternatives if one is not NoneType)
        return None if value is None else _read(value, inner, name)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_read(one, alternatives[0], name) for one in value)
    if is_dataclass(hint) and isinstance(value, dict):
        kind: Any = hint
        hints = get_type_hints(kind)
        return kind(**{key: _read(value[key], one, f"{name}/{key}") for key, one in hints.items()})
    if hint is float and (number := _number(value)) is not None:
        return number
    if type(value) is hint:
        return value
    raise TypeError(f"{name} is {value!r}")


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return _WORDS.get(value)
    return float(value) if type(value) in (int, float) else None
