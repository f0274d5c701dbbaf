"""AMP401 to AMP403: what this machine cannot do, or does slowly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.records import Operation

# NVIDIA's "Matrix Multiplication Background User's Guide": half-precision
# products use the tensor cores fully where dimensions are multiples of 16 bytes.
_MULTIPLE: Final = 8
# Smaller products are bound by their launch, not by the tensor cores.
_LARGE_DIMENSION: Final = 64


def missing_kernels(inquiry: Inquiry, device_type: str) -> Iterator[Finding]:
    """AMP401: operations that raise when they run, one finding per dtype.

    Args:
        inquiry: The trace.
        device_type: `"CPU"` or `"GPU"`, where the model runs.
    """
    missing: dict[str, list[Operation]] = {}
    for op in inquiry.trace.live:
        for attribute, dtype in _half_attributes(inquiry, op):
            if not has_kernel(op.type, attribute, dtype, device_type):
                missing.setdefault(dtype, []).append(op)
                break
    for dtype, ops in missing.items():
        hosts = [host for op in ops if (host := inquiry.host(op)) is not None]
        types = sorted({op.type for op in ops})
        first = hosts[0] if hosts else None
        yield finding(
            "AMP401",
            first.path if first else "",
            first.layer_class if first else "",
            f"{', '.join(types)} {'has' if len(types) == 1 else 'have'} no {dtype} kernel on "
            f"{device_type}: running raises NotFoundError",
            'Give the layer `dtype="float32"`, or use the other half precision.',
            source=inquiry.trace.source(ops[0]) if first and first.is_custom else None,
            affects=tuple(dict.fromkeys(host.path for host in hosts[1:])),
        )


def slow_precision(inquiry: Inquiry, reasons: Mapping[str, str]) -> Iterator[Finding]:
    """AMP402: a dtype that this machine runs slower than float32.

    Args:
        inquiry: The trace.
        reasons: Why, by dtype; only slow ones are in it.
    """
    used = {call.compute_dtype for call in inquiry.half_layer_calls}
    for dtype in sorted(used & set(reasons)):
        yield finding(
            "AMP402",
            "",
            inquiry.trace.layers[0].layer_class if inquiry.trace.layers else "",
            f"{dtype} has no fast path on this machine: {reasons[dtype]}",
            "Train where it has one, or in another precision; `tf-amp-kit hardware` lists them.",
        )


def odd_dimensions(inquiry: Inquiry, device_type: str) -> Iterator[Finding]:
    """AMP403: large half products whose dimensions waste tensor cores."""
    if device_type != "GPU":
        return
    odd: dict[str, list[str]] = {}
    for op in inquiry.products:
        dtype = inquiry.trace.tensors[op.outputs[0]].dtype
        host = inquiry.host(op)
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
            inquiry.trace.layers[0].layer_class if inquiry.trace.layers else "",
            f"{len(unique)} {'layer has' if len(unique) == 1 else 'layers have'} {dtype} products "
            f"with dimensions that are no multiple of {_MULTIPLE}",
            "Round units, channels and vocabulary up.",
            affects=unique,
        )


@cache
def has_kernel(op_type: str, attribute: str, dtype: str, device_type: str) -> bool:
    """Tells whether a kernel is registered for one dtype of an operation.

    Args:
        op_type: The operation type.
        attribute: The name of its dtype attribute, `"T"` mostly.
        dtype: The dtype.
        device_type: `"CPU"` or `"GPU"`.
    """
    kernels = _keras.registered_kernels(op_type)
    here = [constraints for device, constraints in kernels if device in (device_type, "DEFAULT")]
    if not here:
        # Nothing registered for the device: rewritten, or placed elsewhere.
        return True
    return any(
        attribute not in constraints or dtype in constraints[attribute] for constraints in here
    )


def _half_attributes(inquiry: Inquiry, op: Operation) -> Iterator[tuple[str, str]]:
    dtypes = {inquiry.trace.tensors[key].dtype for key in (*op.inputs, *op.outputs)}
    if not any(is_half(dtype) for dtype in dtypes):
        return
    names = {name for _, constraints in _keras.registered_kernels(op.type) for name in constraints}
    for name in sorted(names):
        value = op.get_attribute(name)
        dtype = getattr(value, "name", "")
        if is_half(dtype):
            yield name, dtype
