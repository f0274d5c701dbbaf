"""Counting NaN and Inf in the tensors of a graph, while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import tensorflow as tf

__all__ = ["Health", "bad_ones", "health_of", "is_checked"]

# The mode of TensorFlow's debugger that counts elements, -Inf, +Inf and NaN.
_CONCISE_HEALTH: Final = 3


class Health(NamedTuple):
    """How many elements of a tensor are not finite."""

    num_elements: int
    num_infinite: int
    num_nan: int


# What the kernel takes; 8-bit floats are cast.
_COUNTED: Final = (tf.float16, tf.bfloat16, tf.float32, tf.float64)


def is_checked(tensor: Any) -> bool:
    """Tells whether a tensor can hold NaN or Inf."""
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def health_of(tensors: Sequence[Any]) -> Any:
    """Counts NaN and Inf in tensors of the graph that is being built.

    The kernel reads each tensor once and makes no copy of it.

    Args:
        tensors: Float or complex tensors of any shape.

    Returns:
        A float64 tensor with one row per tensor, for `bad_ones`.
    """
    rows = [
        tf.raw_ops.DebugNumericSummaryV2(
            input=_as_float(tensor),
            output_dtype=tf.float64,
            tensor_debug_mode=_CONCISE_HEALTH,
            tensor_id=0,
        )
        for tensor in tensors
    ]
    return tf.stack(rows) if rows else tf.zeros([0, 5], tf.float64)


def _as_float(tensor: Any) -> Any:
    if tensor.dtype.is_complex:
        return tf.bitcast(tensor, tensor.dtype.real_dtype)
    return tensor if tensor.dtype in _COUNTED else tf.cast(tensor, tf.float32)


def bad_ones(numbers: Sequence[int], counts: Any) -> Mapping[int, Health]:
    """Picks the tensors that hold NaN or Inf.

    Args:
        numbers: Tensor numbers, in the order of `health_of`.
        counts: What `health_of` gave.

    Returns:
        The health by tensor number; finite tensors are left out.
    """
    found = {}
    for number, (_, elements, negative, positive, nan) in zip(
        numbers, counts.numpy().astype(int), strict=True
    ):
        if negative or positive or nan:
            found[number] = Health(int(elements), int(negative + positive), int(nan))
    return found
