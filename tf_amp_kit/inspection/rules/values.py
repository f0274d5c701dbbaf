"""AMP204 to AMP207: values that the half format cannot hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.formats import format_of, is_half, round_trip
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.records import LayerCall, Operation

# Values count as merged when rounding moves them by this much of their spread,
# and at least half of the distinct ones are gone.
_MERGING_NOISE: Final = 0.05
# Operations through which an id goes on as a number.
_ID_TYPES: Final = frozenset(
    {
        "AddV2",
        "Cast",
        "ConcatV2",
        "Floor",
        "FloorDiv",
        "FloorMod",
        "Maximum",
        "Minimum",
        "Mul",
        "Pack",
        "Round",
        "SelectV2",
        "StridedSlice",
        "Sub",
        "Tile",
        "Transpose",
    }
)
_GATHER_TYPES: Final = frozenset({"GatherV2", "ResourceGather", "Gather"})


def changed_constants(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP204, AMP205: a constant became infinite, 0 or 1."""
    for constant in inquiry.trace.constants:
        op = inquiry.trace.operations[constant.operation]
        call = inquiry.trace.call_of(op)
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype
        overflows = math.isinf(constant.value)
        yield finding(
            "AMP204" if overflows else "AMP205",
            call.path if call else "",
            call.layer_class if call else "",
            f"the constant {shortest(constant.intended)} becomes {constant.value!r} in {dtype}",
            mask_fix(dtype, constant.value) if overflows else _epsilon_fix(dtype, constant.value),
            source=inquiry.trace.source(op),
        )


def damaged_inputs(
    inquiries: Sequence[Inquiry], sample: Mapping[str, NDArray[Any]]
) -> Iterator[Finding]:
    """AMP206: the first cast makes raw inputs infinite, or merges them.

    Args:
        inquiries: One per `training` mode.
        sample: Numeric arrays by the key of the model input.
    """
    for inquiry, (key, values) in itertools.product(inquiries, sample.items()):
        tensor = inquiry.trace.inputs.get(key)
        for op, dtype in _casts_down(inquiry, tensor):
            damage = _damage(np.asarray(values, np.float64), dtype)
            if damage:
                call = _receiver(inquiry, op)
                yield finding(
                    "AMP206",
                    call.path if call else "",
                    call.layer_class if call else "",
                    f"casts input {key!r} to {dtype} as it comes: {damage}",
                    "Scale the inputs before the model, or give the layer that scales them "
                    '(Normalization, Rescaling) `dtype="float32"`.',
                )
                break


def rounded_ids(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP207: integers that went through half precision index a table."""
    if not inquiry.trace.dtypes_are_known:
        return  # ids that were taken for floats
    for op in inquiry.trace.live:
        if op.type not in _GATHER_TYPES or len(op.inputs) < 2:
            continue
        narrowed = _half_origin(inquiry, op.inputs[1])
        host = inquiry.trace.host(op)
        if narrowed is None or host is None:
            continue
        largest = format_of(narrowed).largest_exact_integer
        if not _is_weight(inquiry, op.inputs[0]):
            continue
        table = inquiry.trace.tensors[op.inputs[0]].shape
        if table and table[0] is not None and table[0] <= largest + 1:
            continue
        yield finding(
            "AMP207",
            host.path,
            host.layer_class,
            f"looks up ids that went through {narrowed}, in which integers above {largest} merge",
            'Give the model an integer input, `keras.Input(..., dtype="int32")`, and keep ids '
            "away from layers that compute in half.",
        )


def shortest(value: float) -> str:
    """Writes a number as the code would have: -1e+09, not -1000000000.0."""
    digits = (f"{value:.{count}g}" for count in range(1, 18))
    return min(next(text for text in digits if float(text) == value), repr(value), key=len)


def mask_fix(dtype: str, value: float) -> str:
    largest = format_of(dtype).largest
    safe = math.copysign(largest / 2, value)
    return (
        f"Use a finite value of the dtype, `{safe:.6g}` for {dtype} "
        "(`tf_amp_kit.safe_mask_value`), or compute the masked softmax in float32."
    )


def _epsilon_fix(dtype: str, value: float) -> str:
    form = format_of(dtype)
    if value == 1.0:
        return (
            f"The largest {dtype} below 1 is {1 - form.epsilon / 2!r}: use that, or compute "
            "this line in float32."
        )
    return (
        f"Use at least {form.smallest_normal:.2g}, the smallest normal {dtype} "
        "(`tf_amp_kit.safe_epsilon`), or compute this line in float32."
    )


def _receiver(inquiry: Inquiry, op: Operation) -> LayerCall | None:
    """Returns the call that a cast is for."""
    call = inquiry.trace.call_of(op)
    if call is not None and call.kind == "layer":
        return call
    # Keras's preprocessing layers cast before their own call begins.
    fed = (other for other in inquiry.trace.calls if op.outputs[0] in other.inputs)
    return next(fed, call)


def _casts_down(inquiry: Inquiry, tensor: int | None) -> Iterator[tuple[Operation, str]]:
    if tensor is None or not inquiry.trace.tensors[tensor].is_wide:
        return
    for op in inquiry.flow.users(tensor):
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype if op.outputs else ""
        if op.type == "Cast" and is_half(dtype):
            yield op, dtype


def _damage(values: NDArray[np.float64], dtype: str) -> str:
    finite = values[np.isfinite(values)]
    rounded = round_trip(finite, dtype)
    num_infinite = int(np.isinf(rounded).sum())
    if num_infinite:
        return f"{num_infinite} of {finite.size} values become infinite"
    columns = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(-1, 1)
    for index in range(columns.shape[1]):
        before = np.unique(columns[:, index][np.isfinite(columns[:, index])])
        after = np.unique(round_trip(before, dtype))
        spread = before.std() if before.size > 1 else 0.0
        noise = np.sqrt(np.mean((round_trip(before, dtype) - before) ** 2)) if before.size else 0.0
        if spread > 0 and noise > _MERGING_NOISE * spread and 2 * after.size <= before.size:
            where = f" of feature {index}" if columns.shape[1] > 1 else ""
            return f"{before.size} distinct values{where} become {after.size}"
    return ""


def _is_weight(inquiry: Inquiry, key: int) -> bool:
    """Tells whether a tensor is a variable, or a cast of one."""
    op = inquiry.trace.producers.get(inquiry.trace.before_casts(key))
    return op is not None and (
        op.type == "ReadVariableOp" or inquiry.trace.tensors[op.outputs[0]].dtype == "resource"
    )


def _half_origin(inquiry: Inquiry, key: int) -> str | None:
    """Returns the half dtype that an integer tensor was cast from, or None."""
    seen: set[int] = set()
    pending = [key]
    while pending:
        current = pending.pop()
        op = inquiry.trace.producers.get(current)
        if op is None or current in seen:
            continue
        seen.add(current)
        if op.type == "Cast" and is_half(inquiry.trace.tensors[op.inputs[0]].dtype):
            return inquiry.trace.tensors[op.inputs[0]].dtype
        # An index that was counted, as by ArgMax, is exact whatever it was counted in.
        if op.is_passing or op.type in _ID_TYPES or op.type == "Placeholder":
            pending.extend(op.inputs)
    return None
