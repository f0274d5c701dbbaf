"""AMP203: operations that others keep in float32, run in half by custom code.

Two lists are in use and differ. TensorFlow's grappler (`auto_mixed_precision_lists.h`)
denies half precision to some operations, fewer in bfloat16 than in float16.
torch's autocast runs another set in float32 (`torch.amp`, "CUDA Ops that can
autocast to float32"). The union is reported, with the list that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry

_TENSORFLOW_FLOAT16: Final = frozenset(
    {
        "Exp",
        "Expm1",
        "L2Loss",
        "Mean",
        "Pow",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
        "Sum",
    }
)
_TENSORFLOW: Final = {
    "float16": _TENSORFLOW_FLOAT16,
    # Both are accumulated in float32 there.
    "bfloat16": _TENSORFLOW_FLOAT16 - {"Mean", "Sum"},
}
_TORCH: Final = frozenset(
    {
        "Acos",
        "Asin",
        "Cosh",
        "Cumprod",
        "Cumsum",
        "Erfinv",
        "Exp",
        "Expm1",
        "EuclideanNorm",
        "Log",
        "Log1p",
        "LogSoftmax",
        "Pow",
        "Prod",
        "Reciprocal",
        "Rsqrt",
        "Sinh",
        "Softmax",
        "Softplus",
        "Sum",
        "Tan",
    }
)


def sensitive_operations(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP203: per layer and operation type, one note."""
    seen: set[tuple[str, str]] = set()
    for op in inquiry.trace.live:
        host = inquiry.host(op)
        if host is None or not host.is_custom or host.index in inquiry.conflicted:
            continue
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype if op.outputs else ""
        lists = _lists_with(op.type, dtype)
        if not lists or (host.path, op.type) in seen:
            continue
        seen.add((host.path, op.type))
        yield finding(
            "AMP203",
            host.path,
            host.layer_class,
            f"runs {op.type} in {dtype}, which {' and '.join(lists)} "
            f"keep{'s' if len(lists) == 1 else ''} in float32",
            "Where the values can be large, tiny or many: cast up before and down after.",
            source=inquiry.trace.source(op),
        )


def _lists_with(op_type: str, dtype: str) -> list[str]:
    if not is_half(dtype):
        return []
    lists = {"TensorFlow's graph rewriting": _TENSORFLOW[dtype], "torch's autocast": _TORCH}
    return [name for name, types in lists.items() if op_type in types]
