"""AMP201, AMP202: what leaves the model in half precision."""

from __future__ import annotations

from collections.abc import Iterator

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.heads import saturating_activations
from tf_amp_kit.tracing.records import LayerCall


def half_outputs(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP201: `predict` gives half arrays, whose sums overflow."""
    for key, tensor in inquiry.trace.outputs.items():
        dtype = inquiry.trace.tensors[tensor].dtype
        if not is_half(dtype):
            continue
        maker = _maker(inquiry, tensor)
        yield finding(
            "AMP201",
            f"@output/{key}",
            maker.layer_class if maker else "",
            f"leaves the model in {dtype}: losses, metrics and sums of predictions inherit its "
            "range and rounding",
            '`tf_amp_kit.pin_float32(model)`, or `dtype="float32"` for the last layer.',
            affects=(maker.path,) if maker else (),
        )


def half_activations(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP202: the gradient of a saturated sigmoid or softmax is exactly zero."""
    for op in saturating_activations(inquiry.trace):
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype
        host = inquiry.trace.host(op)
        if host is None or not is_half(dtype):
            continue
        yield finding(
            "AMP202",
            host.path,
            host.layer_class,
            f"computes {op.type.lower()} in {dtype}: a confidently wrong sample saturates it, and "
            "gets a gradient of exactly zero",
            '`tf_amp_kit.pin_float32(model)`, or `dtype="float32"` for this layer; a float32 '
            "layer after it is too late. Or return logits, and use `from_logits=True`.",
            source=inquiry.trace.source(op) if host.is_custom else None,
        )


def _maker(inquiry: Inquiry, tensor: int) -> LayerCall | None:
    op = inquiry.trace.producers.get(tensor)
    return inquiry.trace.host(op) if op is not None else None
