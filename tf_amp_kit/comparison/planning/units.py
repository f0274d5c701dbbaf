"""What a plan may pin: layers, composites of Keras whole, and composites of a user's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tf_amp_kit import _keras
from tf_amp_kit.precision.pinning.units import Units
from tf_amp_kit.tracing.paths import LayerPaths, is_below
from tf_amp_kit.tracing.records import LayerCall
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["Unit", "find_units", "innermost", "paths_above", "topmost"]


@dataclass(frozen=True)
class Unit:
    """A layer that can be kept in float32 as one.

    Attributes:
        path: The layer's path.
        layer_class: Its class name.
        parent: The path of the unit around it: a composite whose own code runs in half
            precision as well; None if there is none.
    """

    path: str
    layer_class: str
    parent: str | None = None


def find_units(step: StepTrace, paths: LayerPaths) -> tuple[Unit, ...]:
    """Finds what computes in half precision and can be pinned, in the order of the calls.

    What runs in the body of a loop or branch belongs to the layer that has the loop.

    Args:
        step: A trace of the model in half precision.
        paths: The paths of the model's layers.
    """
    units = Units(step.trace)
    found: dict[str, str] = {}
    hidden: set[str] = set()
    for call in step.trace.calls:
        unit = _unit_of(call, units, paths)
        if unit is None or not units.is_half(unit):
            continue
        found.setdefault(unit.path, unit.layer_class)
        if not _is_in_the_open(unit, step):
            hidden.add(unit.path)
    seen = [path for path in found if path not in hidden]
    return tuple(Unit(path, found[path], _around(path, seen)) for path in seen)


def topmost(paths: Iterable[str]) -> tuple[str, ...]:
    """Leaves out paths below others, in order.

    Example:

    >>> topmost(["block/dense", "block", "head"])
    ('block', 'head')
    """
    known = dict.fromkeys(paths)
    return tuple(one for one in known if not any(above in known for above in paths_above(one)))


def paths_above(path: str) -> tuple[str, ...]:
    """Returns the paths that a path hangs below, the model's own last.

    Example:

    >>> paths_above("block/attention/query")
    ('block/attention', 'block', '')
    """
    above = []
    while path:
        path = path.rpartition("/")[0]
        above.append(path)
    return tuple(above)


def innermost(path: str, units: Iterable[Unit]) -> Unit | None:
    """Returns the smallest unit that holds a layer, or None."""
    around = [unit for unit in units if is_below(path, unit.path)]
    return max(around, key=lambda unit: len(unit.path), default=None)


def _unit_of(call: LayerCall, units: Units, paths: LayerPaths) -> LayerCall | None:
    if call.kind == "model":
        is_code = call.path and call.is_custom and not _keras.is_functional(paths[call.path])
        return call if is_code else None
    return units.around(call)


def _is_in_the_open(call: LayerCall, step: StepTrace) -> bool:
    """Tells whether a call returns floats to the step's own graph, not to a body in it."""
    reader = step.reader
    floats = [reader.symbolic[key] for key in call.outputs if _is_float(reader.symbolic[key])]
    return bool(floats) and all(one.graph is reader.graph for one in floats)


def _is_float(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating)


def _around(path: str, others: Iterable[str]) -> str | None:
    above = [one for one in others if one != path and is_below(path, one)]
    return max(above, key=len, default=None)
