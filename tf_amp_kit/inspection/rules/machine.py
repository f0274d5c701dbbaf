"""AMP401 to AMP403: what this machine cannot do, or does slowly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.kernels import missing_half_kernel
from tf_amp_kit.tracing.records import Conflict, Operation
from tf_amp_kit.tracing.source import Source

# NVIDIA's "Matrix Multiplication Background User's Guide": half-precision
# products use the tensor cores fully where dimensions are multiples of 16 bytes.
_MULTIPLE: Final = 8
# Smaller products are bound by their launch, not by the tensor cores.
_LARGE_DIMENSION: Final = 64


@dataclass(frozen=True)
class _Gap:
    """An operation without a kernel for a dtype, and where it was met."""

    dtype: str
    operation: str
    path: str
    layer_class: str
    source: Source | None


def missing_kernels(
    inquiries: Sequence[Inquiry], conflicts: Iterable[Conflict], device_type: str
) -> Iterator[Finding]:
    """AMP401: operations that raise when they run or are built, one finding per dtype.

    Args:
        inquiries: One per `training` mode.
        conflicts: Calls that raised for want of a kernel; others are skipped.
        device_type: `"CPU"` or `"GPU"`, where the model runs.
    """
    gaps: dict[str, list[_Gap]] = defaultdict(list)
    met = [gap for gap in map(_gap_of, conflicts) if gap is not None]
    for gap in (*met, *(gap for one in inquiries for gap in _gaps(one, device_type))):
        gaps[gap.dtype].append(gap)
    for dtype, found in gaps.items():
        first = found[0]
        types = sorted({gap.operation for gap in found})
        others = dict.fromkeys(gap.path for gap in found if gap.path != first.path)
        yield finding(
            "AMP401",
            first.path,
            first.layer_class,
            f"{', '.join(types)} {'has' if len(types) == 1 else 'have'} no {dtype} kernel on "
            f"{device_type}: that raises as soon as it runs",
            'Give the layer `dtype="float32"`, or use the other half precision.',
            source=first.source,
            affects=tuple(others),
        )


def _gap_of(conflict: Conflict) -> _Gap | None:
    if not conflict.is_missing_kernel:
        return None
    dtype = next((name for name in conflict.dtypes if is_half(name)), "half-precision")
    operation = conflict.operation or "an operation"
    return _Gap(dtype, operation, conflict.path, conflict.layer_class, conflict.source)


def _gaps(inquiry: Inquiry, device_type: str) -> Iterator[_Gap]:
    for op in inquiry.trace.live:
        host = inquiry.trace.host(op)
        if host is None or not _touches_half(inquiry, op):
            continue
        dtype = missing_half_kernel(op.type, op.get_attribute, device_type)
        if dtype is not None:
            source = inquiry.trace.source(op) if host.is_custom else None
            yield _Gap(dtype, op.type, host.path, host.layer_class, source)


def _touches_half(inquiry: Inquiry, op: Operation) -> bool:
    tensors = inquiry.trace.tensors
    return any(is_half(tensors[key].dtype) for key in (*op.inputs, *op.outputs))


def slow_precision(inquiries: Sequence[Inquiry], reasons: Mapping[str, str]) -> Iterator[Finding]:
    """AMP402: a dtype that this machine runs slower than float32.

    Args:
        inquiries: One per `training` mode.
        reasons: Why, by dtype; only slow ones are in it.
    """
    used = {call.compute_dtype for one in inquiries for call in one.half_layer_calls}
    for dtype in sorted(used & set(reasons)):
        yield finding(
            "AMP402",
            "",
            inquiries[0].trace.layers[0].layer_class,
            f"{dtype} has no fast path on this machine: {reasons[dtype]}",
            "Train where it has one, or in another precision; `tf-amp-kit hardware` lists them.",
        )


def odd_dimensions(inquiries: Sequence[Inquiry], device_type: str) -> Iterator[Finding]:
    """AMP403: large half products whose dimensions waste tensor cores."""
    if device_type != "GPU":
        return
    odd: dict[str, list[str]] = {}
    for inquiry, op in ((one, op) for one in inquiries for op in one.products):
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype
        host = inquiry.trace.host(op)
        sizes = [
            size
            for key in (*op.inputs, *op.outputs)
            for size in (inquiry.trace.tensors[key].shape or ())[-2:]
            if size is not None and size >= _LARGE_DIMENSION and size % _MULTIPLE
        ]
        if is_half(dtype) and sizes and host is not None:
            odd.setdefault(dtype, []).append(host.path)
    for dtype, paths in odd.items():
        unique = tuple(dict.fromkeys(paths))
        yield finding(
            "AMP403",
            "",
            inquiries[0].trace.layers[0].layer_class,
            f"{len(unique)} {'layer has' if len(unique) == 1 else 'layers have'} {dtype} products "
            f"with dimensions that are no multiple of {_MULTIPLE}",
            "Round units, channels and vocabulary up.",
            affects=unique,
        )
