"""Constants that half precision changed, seen by the same train step in float32."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from tf_amp_kit.formats import is_float, is_half, round_trip
from tf_amp_kit.tracing.records import PASSING_TYPES, Operation
from tf_amp_kit.tracing.source import Source
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["Changed", "Constants"]

# What hands a guard on: `x + 1e-8`, `maximum(x, 1e-8)`, `clip(x, 1e-8, 1 - 1e-8)`.
_GUARDING_TYPES: Final = PASSING_TYPES | {
    "Add",
    "AddV2",
    "BroadcastTo",
    "Cast",
    "ClipByValue",
    "Maximum",
    "Minimum",
    "Placeholder",
    "Sub",
}
_MAX_STEPS_BACK: Final = 8

# The layer, and the file and line in it.
_Place = tuple[str, str, int]


class Changed(NamedTuple):
    """A constant that is not what the code says."""

    operation: Operation
    intended: float
    source: Source | None


class Constants:
    """Compares the constants of two traces of one train step.

    Args:
        step: The step as it trains.
        twin: The same step in float32.
    """

    def __init__(self, step: StepTrace, twin: StepTrace) -> None:
        self._step = step
        self._twin = twin

    def is_deliberate(self, op: Operation) -> bool:
        """Tells whether a constant with infinite elements holds them in float32 too."""
        if not is_half(self._step.trace.tensors[op.outputs[0]].dtype):
            return True
        other = self._counterpart(op)
        value = None if other is None else other.constant()
        return value is not None and bool(np.isinf(value.astype(np.float64)).any())

    def changed_by(self, op: Operation) -> Changed | None:
        """Tells what a constant, or the cast of one, was meant to be, if it is not that."""
        dtype = self._step.trace.tensors[op.outputs[0]].dtype if op.outputs else ""
        if not is_half(dtype):
            return None
        if op.type == "Cast":
            producer = self._step.trace.producers.get(op.inputs[0])
            meant = None if producer is None else producer.constant()
            value = None if meant is None else round_trip(meant, dtype)
        else:
            value = op.constant()
            other = None if value is None else self._counterpart(op)
            meant = None if other is None else other.constant()
        if value is None or meant is None or value.shape != meant.shape or not value.size:
            return None
        lost = _first_lost(value.astype(np.float64), meant)
        return None if lost is None else Changed(op, lost, self._step.trace.source(op))

    def behind(self, key: int) -> Changed | None:
        """Looks for a changed constant that a tensor was to be kept off an edge by."""
        trace = self._step.trace
        pending, seen = [(key, 0)], set()
        while pending:
            current, steps = pending.pop(0)
            op = trace.producers.get(current)
            if op is None or current in seen or steps > _MAX_STEPS_BACK:
                continue
            seen.add(current)
            found = self.changed_by(op)
            if found is not None:
                return found
            if op.type in _GUARDING_TYPES:
                pending += [(one, steps + 1) for one in op.inputs]
        return None

    def _counterpart(self, op: Operation) -> Operation | None:
        """Finds the constant that the same line made in the float32 trace."""
        place = _place(self._step, op)
        here, there = self._by_place.get(place, []), self._others.get(place, [])
        if op.index not in here or len(here) != len(there):
            return None
        return self._twin.trace.operations[there[here.index(op.index)]]

    @cached_property
    def _by_place(self) -> dict[_Place, list[int]]:
        return _constants_by_place(self._step)

    @cached_property
    def _others(self) -> dict[_Place, list[int]]:
        return _constants_by_place(self._twin)


def _constants_by_place(step: StepTrace) -> dict[_Place, list[int]]:
    found: dict[_Place, list[int]] = defaultdict(list)
    for op in step.trace.operations:
        if op.type == "Const" and is_float(step.trace.tensors[op.outputs[0]].dtype):
            found[_place(step, op)].append(op.index)
    return found


def _place(step: StepTrace, op: Operation) -> _Place:
    call = step.trace.call_of(op)
    source = step.trace.source(op)
    where = (source.file, source.line) if source else ("", 0)
    return (call.path if call else "", *where)


def _first_lost(values: Any, meant: Any) -> float | None:
    """Returns the first number that became 0, 1 or infinite without being that."""
    numbers = meant.ravel()
    changed = values.ravel()
    is_lost = np.isin(changed, (0.0, 1.0)) | np.isinf(changed)
    is_lost &= (changed != numbers) & np.isfinite(numbers)
    first = np.flatnonzero(is_lost)[:1]
    # By way of the shortest decimal: 1e-8, as written, and not 9.99999993922529e-09.
    return float(str(numbers[first[0]])) if first.size else None
