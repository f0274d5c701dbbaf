"""AMP203: operations that others keep in float32, run in half by custom code."""

from __future__ import annotations

from collections.abc import Iterator

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.sensitivity import lists_with


def sensitive_operations(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP203: per layer and operation type, one note."""
    seen: set[tuple[str, str]] = set()
    for op in inquiry.trace.live:
        host = inquiry.trace.host(op)
        if host is None or not host.is_custom or host.index in inquiry.conflicted:
            continue
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype if op.outputs else ""
        lists = lists_with(op.type, dtype)
        if not lists or (host.path, op.type) in seen:
            continue
        seen.add((host.path, op.type))
        yield finding(
            "AMP203",
            host.path,
            host.layer_class,
            f"runs {op.type} in {dtype}, which {' and '.join(lists)} "
            f"keep{'s' if len(lists) == 1 else ''} in float32",
            "Where values can be large, tiny or many: put it into a `tf_amp_kit.float32_op`.",
            source=inquiry.trace.source(op),
        )
