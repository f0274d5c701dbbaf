"""Matrix products: which operations are, in what dtype, and how much they cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Operation

_MATMULS: Final = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_CONVOLUTIONS: Final = frozenset({"Conv2D", "Conv3D", "Conv", "DepthwiseConv2dNative"})
_TRANSPOSED: Final = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2"})
_OTHERS: Final = frozenset(
    {"Einsum", "SparseTensorDenseMatMul", "SparseMatMul", "CudnnRNN", "CudnnRNNV3", "XlaDotV2"}
)

PRODUCT_TYPES: Final = _MATMULS | _CONVOLUTIONS | _TRANSPOSED | _OTHERS


def products(trace: ModelTrace) -> Iterator[Operation]:
    """Yields the live matrix products, convolutions and einsums of a trace."""
    for op in trace.live:
        if op.type in PRODUCT_TYPES:
            yield op


def num_multiply_adds(trace: ModelTrace, op: Operation) -> int:
    """Counts the multiply-adds of a product for one sample.

    Unknown dimensions count as 1, and the body of a loop counts once.

    Args:
        trace: The trace.
        op: One of `products(trace)`.

    Returns:
        The number of multiply-adds, at least 1.
    """
    shapes = [trace.tensors[key].shape or () for key in op.inputs]
    output = _size(trace.tensors[op.outputs[0]].shape or ())
    if op.type in _MATMULS and shapes:
        return _elements(trace, op.inputs[0]) * _dimension(trace.tensors[op.outputs[0]].shape, -1)
    if op.type == "DepthwiseConv2dNative" and len(shapes) > 1:
        return output * _size(shapes[1][:2])
    if op.type in _CONVOLUTIONS and len(shapes) > 1:
        return output * _size(shapes[1][:-1])
    if op.type in _TRANSPOSED and len(shapes) > 2:
        return _size(shapes[2]) * _size(shapes[1][:-1])
    if op.type == "Einsum":
        return _einsum_size(op.get_attribute("equation"), shapes)
    return max(output, 1)


def _einsum_size(equation: Any, shapes: list[tuple[int | None, ...]]) -> int:
    text = equation.decode() if isinstance(equation, bytes) else str(equation)
    sizes: dict[str, int] = {}
    for labels, shape in zip(text.split("->")[0].split(","), shapes, strict=False):
        for position, label in enumerate(labels.replace("...", "")):
            sizes[label] = max(sizes.get(label, 1), _dimension(shape, position))
    return math.prod(sizes.values())


def _elements(trace: ModelTrace, key: int) -> int:
    """Counts the elements of a tensor for one sample.

    A reshape that joins the batch with another dimension hides that one: the
    tensor before it tells.
    """
    return _size(trace.tensors[trace.before_casts(key)].shape or ())


def _size(shape: tuple[int | None, ...]) -> int:
    return math.prod(size or 1 for size in shape)


def _dimension(shape: tuple[int | None, ...] | None, axis: int) -> int:
    try:
        return (shape or ())[axis] or 1
    except IndexError:
        return 1
