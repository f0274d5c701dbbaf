"""AMP204 again: masks that are made in float32, and overflow in a later cast."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from tf_amp_kit.formats import is_half, round_trip
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.rules.values import mask_fix, shortest
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.source import is_user_code

# Operations that choose among values or move them, and make no larger ones.
_CHOOSING_TYPES: Final = frozenset(
    {
        "BroadcastTo",
        "ConcatV2",
        "Fill",
        "MatrixBandPart",
        "MatrixSetDiag",
        "MatrixSetDiagV3",
        "Neg",
        "Pack",
        "Select",
        "SelectV2",
        "StridedSlice",
        "Tile",
        "Transpose",
    }
)
# Operations that make switches of switches.
_SWITCHING_TYPES: Final = _CHOOSING_TYPES | {"Maximum", "Minimum", "Mul", "Sub"}


def overflowing_masks(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP204: a constant beyond the format gets to a cast as it is, or times 0 or 1."""
    known = {constant.operation for constant in inquiry.trace.constants}
    for cast in inquiry.trace.live:
        dtype = inquiry.trace.tensors[cast.outputs[0]].dtype if cast.outputs else ""
        if cast.type != "Cast" or not is_half(dtype) or cast.index in known:
            continue
        for op in _constants(inquiry, cast.inputs[0]):
            value, source = _overflowing(op, dtype), inquiry.trace.source(op)
            call = inquiry.trace.call_of(op)
            if value is None or source is None or call is None or call.index in inquiry.conflicted:
                continue
            if is_user_code(source.file):  # Keras knows what it does
                yield finding(
                    "AMP204",
                    call.path,
                    call.layer_class,
                    f"the constant {shortest(value)} becomes {math.copysign(math.inf, value)!r} "
                    f"in {dtype}",
                    mask_fix(dtype, value),
                    source=source,
                )


def _constants(inquiry: Inquiry, key: int) -> Iterator[Operation]:
    """Yields the constants whose values a float32 tensor may hold unchanged."""
    op = inquiry.trace.producers.get(key)
    if op is None or not inquiry.trace.tensors[key].is_wide:
        return
    if op.type == "Const":
        yield op
    elif op.type == "Mul":
        for one, other in (op.inputs, op.inputs[::-1]):
            if _is_switch(inquiry, other):
                yield from _constants(inquiry, one)
    elif op.is_passing or op.type in _CHOOSING_TYPES:
        for operand in op.inputs:
            yield from _constants(inquiry, operand)


def _is_switch(inquiry: Inquiry, key: int) -> bool:
    """Tells whether a tensor holds nothing but 0, 1 and -1: what was a truth value."""
    pending, seen = [key], set[int]()
    while pending:
        op = inquiry.trace.producers.get(pending.pop())
        if op is None or op.index in seen:
            continue
        seen.add(op.index)
        if op.type == "Cast":
            if inquiry.trace.tensors[op.inputs[0]].dtype != "bool":
                return False
        elif op.type == "Const":
            array = op.constant()
            if array is None or not np.isin(array, (-1, 0, 1)).all():
                return False
        elif op.type in _SWITCHING_TYPES or op.is_passing:
            pending.extend(k for k in op.inputs if inquiry.trace.tensors[k].is_wide)
        elif op.type not in ("OneHot", "OnesLike"):
            return False
    return True


def _overflowing(op: Operation, dtype: str) -> float | None:
    array = op.constant()
    if array is None or array.size == 0:
        return None
    values = array.ravel().astype(np.float64)
    lost = np.isfinite(values) & np.isinf(round_trip(values, dtype))
    return float(values[np.flatnonzero(lost)[0]]) if lost.any() else None
