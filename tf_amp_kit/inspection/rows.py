"""One row per layer: told, returned, ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.inspection.findings import Finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.report import LayerRow
from tf_amp_kit.tracing.products import PRODUCT_TYPES
from tf_amp_kit.tracing.records import LayerCall, LayerFacts, Operation

# Findings whose `affects` are float32 layers, rather than what float32 gets to.
_TELLING: Final = ("AMP103", "AMP104")


def layer_rows(inquiries: Sequence[Inquiry], findings: Sequence[Finding]) -> tuple[LayerRow, ...]:
    """Describes every layer that has a path, or that was called.

    Args:
        inquiries: One per `training` mode.
        findings: The findings, whose codes go into the rows.

    Returns:
        The rows, the model's own first, then in the order of the paths.
    """
    facts = {one.path: one for one in inquiries[0].trace.layers}
    calls: dict[str, list[tuple[Inquiry, LayerCall]]] = {}
    for inquiry in inquiries:
        for call in inquiry.trace.calls:
            was_retried = call.is_conflicted and call.parent in inquiry.conflicted
            if call.kind != "operation" and not was_retried:
                calls.setdefault(call.path, []).append((inquiry, call))
    # What another finding explains is neither chosen nor designed.
    told = {one.path for one in findings if one.severity != "note"}
    told |= {path for one in findings if one.code in _TELLING for path in one.affects}
    untold = set(facts) | set(calls) if is_half(inquiries[0].precision) else set()
    return tuple(
        _row(
            path,
            facts.get(path),
            calls.get(path, []),
            findings,
            is_untold=path in untold - told,
            is_pinned=inquiries[0].is_pinned(path),
        )
        for path in dict.fromkeys([*facts, *calls])
    )


def _row(
    path: str,
    facts: LayerFacts | None,
    calls: list[tuple[Inquiry, LayerCall]],
    findings: Sequence[Finding],
    *,
    is_untold: bool,
    is_pinned: bool,
) -> LayerRow:
    outputs: dict[str, None] = {}
    products: dict[str, None] = {}
    others: dict[str, None] = {}
    for inquiry, call in calls:
        outputs.update(dict.fromkeys(inquiry.trace.tensors[key].dtype for key in call.outputs))
        for op in () if call.is_conflicted else inquiry.trace.own_operations(call):
            chosen = products if op.type in PRODUCT_TYPES else others
            if _computes(op):
                chosen.update(dict.fromkeys(_float_outputs(inquiry, op)))
    known = facts or calls[0][1]
    codes = tuple(dict.fromkeys(one.code for one in findings if one.path == path))
    compute = tuple(products or others)
    remark = _remark(known, calls) if is_untold and "float32" in compute else ""
    return LayerRow(
        path=path,
        layer_class=known.layer_class,
        policy=known.policy,
        output_dtypes=tuple(outputs),
        compute_dtypes=compute,
        remark="pinned" if is_pinned else remark,
        findings=codes,
    )


def _computes(op: Operation) -> bool:
    return not op.is_passing and op.type not in ("Cast", "Const", "Placeholder", "ReadVariableOp")


def _float_outputs(inquiry: Inquiry, op: Operation) -> list[str]:
    dtypes = [inquiry.trace.tensors[key].dtype for key in op.outputs]
    return [dtype for dtype in dtypes if is_float(dtype)]


def _remark(known: LayerFacts | LayerCall, calls: list[tuple[Inquiry, LayerCall]]) -> str:
    """Says why a layer computes in float32, where that is no finding."""
    if known.compute_dtype == "float32":
        return "by its own choice"
    return "inside" if any(call.is_custom for _, call in calls) else "by design"
