"""AMP101 to AMP103: layers that silently leave half precision."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry, Reversion
from tf_amp_kit.tracing.records import LayerCall, Operation
from tf_amp_kit.tracing.source import Source

_FIX: Final = (
    "Bring the wide operand to the layer's dtype where it is used: "
    "`ops.cast(value, self.compute_dtype)`; for a weight, leave `autocast` on. "
    "If float32 is meant, say so: run the lines under `tf_amp_kit.float32_op`, or give the "
    'layer `dtype="float32"`.'
)
_FIX_DOUBLE: Final = (
    "NumPy makes float64 unless told otherwise. Bring the wide operand to the layer's dtype where "
    "it is used: `ops.cast(value, self.compute_dtype)`."
)
_FIX_SUBLAYER: Final = (
    "Give the inner layer the outer one's policy, `dtype=self.dtype_policy`, or build it under "
    'the same global policy. If float32 is meant, give the outer layer `dtype="float32"` too.'
)
_FIX_PRODUCT: Final = (
    "Remove the cast around the product, or give the inner layer the same policy as the outer "
    'one. If float32 is meant, give the outer layer `dtype="float32"` too.'
)


def silent_reversions(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP101, AMP102: the output is wider than the compute dtype."""
    for reversion, doing in inquiry.mistakes:
        yield _finding(inquiry, reversion, doing, _pick(inquiry, doing))
    for reversion in inquiry.float32_exits:
        yield _exit_finding(inquiry, reversion)
    yield from _double_outputs(inquiry)


def wide_products(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP103: a product runs in float32 inside a half layer."""
    groups: dict[tuple[str, Source | None], list[tuple[Operation, LayerCall, LayerCall]]]
    groups = defaultdict(list)
    for op, host, around in inquiry.unmeant_products:
        if around is not None:
            groups[around.path, _line(inquiry, op, around)].append((op, host, around))
    for (path, source), found in groups.items():
        ops, around = [op for op, _, _ in found], found[0][2]
        yield finding(
            "AMP103",
            path,
            around.layer_class,
            f"runs {_names(ops)} in {inquiry.trace.tensors[ops[0].outputs[0]].dtype}, although it "
            f"computes in {around.compute_dtype}: {inquiry.share(ops):.0%} of the model's "
            "multiply-adds",
            _FIX_PRODUCT,
            source=source,
            affects=tuple(dict.fromkeys(host.path for _, host, _ in found if host.path != path)),
        )


def _double_outputs(inquiry: Inquiry) -> Iterator[Finding]:
    """A float32 layer that returns float64 is no more meant than a half one."""
    tensors = inquiry.trace.tensors
    for call in inquiry.trace.calls:
        if call.kind != "layer" or call.compute_dtype != "float32" or call.is_conflicted:
            continue
        given = any(tensors[key].dtype == "float64" for key in call.inputs)
        returned = any(tensors[key].dtype == "float64" for key in call.outputs)
        makers = [
            op
            for op in inquiry.trace.own_operations(call)
            if any(tensors[key].dtype == "float64" for key in op.outputs)
        ]
        if returned and makers and not given:
            yield finding(
                "AMP102",
                call.path,
                call.layer_class,
                "returns float64 although it computes in float32",
                _FIX_DOUBLE,
                source=next((s for op in makers if (s := inquiry.trace.source(op))), None),
            )


def _line(inquiry: Inquiry, op: Operation, around: LayerCall) -> Source | None:
    """Points at the promotion that made a product wide, else at the product."""
    roots = sorted({root for key in op.inputs for root in inquiry.flow.roots.get(key, ())})
    for root in map(inquiry.flow.operation, roots):
        host = inquiry.trace.host(root)
        is_own = host is not None and host.index == around.index
        if is_own and inquiry.flow.is_upcast(root) and not inquiry.is_explicit(root):
            return inquiry.trace.source(root)
    return inquiry.trace.source(op, around) or inquiry.trace.source(op)


def _pick(inquiry: Inquiry, roots: Iterable[int]) -> Operation:
    """Chooses the root to point at: the first upcast, else the first with a line."""
    ops = [inquiry.flow.operation(index) for index in sorted(roots)]
    upcasts = [op for op in ops if inquiry.flow.is_upcast(op)]
    with_line = [op for op in upcasts or ops if inquiry.trace.source(op)]
    return (with_line or upcasts or ops)[0]


def _finding(
    inquiry: Inquiry, reversion: Reversion, doing: frozenset[int], root: Operation
) -> Finding:
    call, dtype = reversion.call, inquiry.trace.tensors[reversion.output].dtype
    products = [
        op
        for op in inquiry.products
        if inquiry.flow.roots.get(op.outputs[0], frozenset()) & doing
        and (host := inquiry.trace.host(op)) is not None
        and host.is_half
    ]
    share = (
        f"; {inquiry.share(products):.0%} of the model's multiply-adds follow" if products else ""
    )
    return finding(
        "AMP102" if dtype == "float64" else "AMP101",
        call.path,
        call.layer_class,
        f"returns {dtype} although it computes in {call.compute_dtype}: "
        f"{_cause(inquiry, root)}{share}",
        _FIX_DOUBLE if dtype == "float64" else _FIX,
        source=inquiry.trace.source(root),
        affects=inquiry.flow.touched_by(doing, but=call.path),
    )


def _exit_finding(inquiry: Inquiry, reversion: Reversion) -> Finding:
    call, dtype = reversion.call, inquiry.trace.tensors[reversion.output].dtype
    producer = inquiry.trace.producers[reversion.output]
    host = inquiry.trace.host(producer)
    inner = host.path if host is not None and host.index != call.index else ""
    cause = f"its sublayer {inner!r} is float32" if inner else "a float32 input is not cast down"
    return finding(
        "AMP102" if dtype == "float64" else "AMP101",
        call.path,
        call.layer_class,
        f"returns {dtype} although it computes in {call.compute_dtype}: {cause}",
        _FIX_SUBLAYER if inner else _FIX,
        source=inquiry.trace.source(producer, call),
        affects=inquiry.flow.touched_by(reversion.foreign, but=call.path),
    )


def _cause(inquiry: Inquiry, root: Operation) -> str:
    dtype = inquiry.trace.tensors[root.outputs[0]].dtype
    if inquiry.flow.is_upcast(root):
        narrow = inquiry.trace.tensors[root.inputs[0]].dtype
        users = {op.type for op in inquiry.flow.users(root.outputs[0])}
        what = f" for {_join(sorted(users))}" if users else ""
        return f"a {narrow} tensor is cast to {dtype}{what}"
    if root.type == "ReadVariableOp":
        return f"a weight is read as {dtype}, without autocast"
    return f"a {dtype} value is made by {root.type}"


def _names(ops: list[Operation]) -> str:
    return _join(sorted({op.type for op in ops}))


def _join(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
