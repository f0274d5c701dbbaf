"""AMP105, AMP106: what happens outside layers, and casts that serve nothing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.paths import auto_name, join
from tf_amp_kit.tracing.records import LayerCall, Operation
from tf_amp_kit.tracing.source import Source

_FIX: Final = (
    "Cast the wide operand first, `ops.cast(value, tensor.dtype)`, or do this inside a layer, "
    "where Keras casts the inputs."
)
_FIX_PRODUCT: Final = (
    "Do this inside a layer, where Keras casts the inputs, or cast the input first: "
    "`ops.cast(inputs, {dtype!r})`."
)


def wide_operations(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP105: an operation outside any layer widens, or computes wide."""
    if not is_half(inquiry.precision):
        return
    for root in inquiry.widening_roots:
        op = inquiry.flow.operation(root)
        owner = inquiry.trace.calls[op.call]
        wide = inquiry.trace.tensors[op.outputs[0]].dtype
        narrow = inquiry.trace.tensors[op.inputs[0]].dtype
        users = inquiry.flow.users(op.outputs[0])
        name = users[0].type if users else op.type
        path = _path(owner, name)
        yield finding(
            "AMP105",
            path,
            owner.layer_class if owner.kind == "operation" else name,
            f"casts a {narrow} tensor to {wide} outside any layer",
            _FIX,
            source=inquiry.trace.source(op),
            affects=inquiry.flow.touched_by(frozenset({root}), but=path),
        )
    yield from _wide_products(inquiry)


def idle_casts(inquiries: Sequence[Inquiry]) -> Iterator[Finding]:
    """AMP106: casts down and up again, or up and down, with nothing in between."""
    casts: dict[tuple[str, str], tuple[int, Source | None]] = {}
    for inquiry in inquiries:
        for key, ops in _idle_casts(inquiry).items():
            if len(ops) > casts.get(key, (0, None))[0]:
                casts[key] = len(ops), inquiry.trace.source(ops[0])
    for (path, layer_class), (count, source) in casts.items():
        times = "once" if count == 1 else f"{count} times"
        yield finding(
            "AMP106",
            path,
            layer_class,
            f"casts to another float dtype and back {times}, without using the value between",
            "Let neighbours compute in one dtype. Between nested models, and around layers that "
            "compute in float32 inside, the casts are Keras's own and cost little.",
            source=source,
        )


def _idle_casts(inquiry: Inquiry) -> dict[tuple[str, str], list[Operation]]:
    found: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for op in inquiry.trace.live:
        call = inquiry.trace.call_of(op)
        if call is None or not inquiry.flow.is_idle_cast(op):
            continue
        pair = [op, *inquiry.flow.users(op.outputs[0])]
        # Another finding is about one of them, or brought it about.
        is_told = any(one.index in inquiry.guilty or one.call in inquiry.conflicted for one in pair)
        if not is_told:
            found[call.path, call.layer_class].append(op)
    return found


def _wide_products(inquiry: Inquiry) -> Iterator[Finding]:
    for op, _, around in inquiry.unmeant_products:
        if around is not None:
            continue
        call = inquiry.trace.calls[op.call]
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype
        yield finding(
            "AMP105",
            _path(call, op.type),
            call.layer_class if call.kind == "operation" else op.type,
            f"runs {op.type} in {dtype} outside any layer: {inquiry.share([op]):.0%} of the "
            "model's multiply-adds",
            _FIX_PRODUCT.format(dtype=inquiry.precision),
            source=inquiry.trace.source(op),
        )


def _path(call: LayerCall, op_type: str) -> str:
    if call.kind == "operation":
        return call.path
    return join(call.path, f"@{auto_name(re.sub(r'V[0-9]+$', '', op_type))}")
