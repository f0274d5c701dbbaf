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
    'If float32 is meant, say so: give the layer `dtype="float32"`.'
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
    for reversion in inquiry.reversions:
        if reversion.foreign & inquiry.guilty:
            continue  # passes on what another finding is about
        if reversion.own:
            yield _finding(inquiry, reversion, _pick(inquiry, reversion.own))
        elif _adds_to_it(inquiry, reversion):
            yield _sublayer_finding(inquiry, reversion)


def wide_products(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP103: a product runs in float32 inside a half layer."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    layers: dict[str, LayerCall] = {}
    for op in inquiry.products:
        around = inquiry.half_layer_around(op)
        host = inquiry.host(op)
        roots = inquiry.flow.roots.get(op.outputs[0])
        if around is None or host is None or roots is None or roots & inquiry.guilty:
            continue
        is_own_choice = not host.is_half and op.outputs[0] in inquiry.flow.reaching_outputs
        if is_own_choice or around.index in inquiry.conflicted or host.index in inquiry.conflicted:
            continue
        groups[around.path].append(op)
        layers[around.path] = around
    for path, ops in groups.items():
        around = layers[path]
        inner = tuple(dict.fromkeys(host.path for op in ops if (host := inquiry.host(op))))
        yield finding(
            "AMP103",
            path,
            around.layer_class,
            f"runs {_names(ops)} in {inquiry.trace.tensors[ops[0].outputs[0]].dtype}, although it "
            f"computes in {around.compute_dtype}: {inquiry.share(ops):.0%} of the model's "
            "multiply-adds",
            _FIX_PRODUCT,
            source=_line(inquiry, ops[0], around),
            affects=tuple(other for other in inner if other != path),
        )


def _line(inquiry: Inquiry, op: Operation, around: LayerCall) -> Source | None:
    """Points at the promotion that made a product wide, else at the product."""
    roots = sorted({root for key in op.inputs for root in inquiry.flow.roots.get(key, ())})
    for root in map(inquiry.flow.operation, roots):
        host = inquiry.host(root)
        is_own = host is not None and host.index == around.index
        if is_own and inquiry.flow.is_upcast(root) and not inquiry.is_explicit(root):
            return inquiry.trace.source(root)
    return inquiry.trace.source(op, around) or inquiry.trace.source(op)


def _adds_to_it(inquiry: Inquiry, reversion: Reversion) -> bool:
    """Tells innocent wide values that leave a half layer from those meant to."""
    if reversion.output in inquiry.flow.reaching_outputs and not _computes_wide(inquiry, reversion):
        return False  # a head that is float32 by its own choice
    given = any(key in inquiry.flow.roots for key in reversion.call.inputs)
    return _computes_wide(inquiry, reversion) or not given


def _computes_wide(inquiry: Inquiry, reversion: Reversion) -> bool:
    return any(
        key in inquiry.flow.roots and not op.is_passing and op.type != "Cast"
        for op in inquiry.own_operations(reversion.call)
        for key in op.outputs
    )


def _pick(inquiry: Inquiry, roots: Iterable[int]) -> Operation:
    """Chooses the root to point at: the first upcast, else the first with a line."""
    ops = [inquiry.flow.operation(index) for index in sorted(roots)]
    upcasts = [op for op in ops if inquiry.flow.is_upcast(op)]
    with_line = [op for op in upcasts or ops if inquiry.trace.source(op)]
    return (with_line or upcasts or ops)[0]


def _finding(inquiry: Inquiry, reversion: Reversion, root: Operation) -> Finding:
    call, dtype = reversion.call, inquiry.trace.tensors[reversion.output].dtype
    products = [
        op
        for op in inquiry.products
        if inquiry.flow.roots.get(op.outputs[0], frozenset()) & reversion.own
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
        _FIX,
        source=inquiry.trace.source(root),
        affects=inquiry.flow.touched_by(reversion.own, but=call.path),
    )


def _sublayer_finding(inquiry: Inquiry, reversion: Reversion) -> Finding:
    call, dtype = reversion.call, inquiry.trace.tensors[reversion.output].dtype
    producer = inquiry.trace.producers[reversion.output]
    host = inquiry.host(producer)
    inner = host.path if host is not None and host.index != call.index else ""
    cause = f"its sublayer {inner!r} is float32" if inner else "a float32 input is not cast down"
    return finding(
        "AMP102" if dtype == "float64" else "AMP101",
        call.path,
        call.layer_class,
        f"returns {dtype} although it computes in {call.compute_dtype}: {cause}",
        _FIX_SUBLAYER if inner else _FIX,
        source=inquiry.trace.source(producer, call),
        affects=(inner,) if inner else (),
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
