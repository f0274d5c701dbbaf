"""Whether gradients are finite: exactly, and in one pass over them.

Sums are no shortcut. A sum of finite numbers may overflow, which a second look
could mend; but XLA joins the sum of a sum into one, and what was infinite in
between is lost. A largest absolute value loses NaN there.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_amp_kit import _keras

__all__ = ["all_finite", "divided_by", "global_norm_is_finite"]

# The mode of `DebugNumericSummaryV2` that answers with two numbers, the second
# of which is 1 if an element is NaN or infinite, else 0.
_CURT_HEALTH = 2


def all_finite(tensors: list[Any]) -> Any:
    """Tells whether every element is finite.

    Args:
        tensors: Float tensors of any shape, or `tf.IndexedSlices`, whose slices
            of one row count as their sum.

    Returns:
        A bool scalar. True for no tensors at all.
    """
    if not tensors:
        return tf.constant(True)
    dense = [t.values if isinstance(t, tf.IndexedSlices) else t for t in tensors]
    rows = [_rows_are_finite(t) for t in tensors if isinstance(t, tf.IndexedSlices)]
    if _keras.is_compiled_by_xla():
        verdicts = [tf.reduce_all(tf.math.is_finite(tensor)) for tensor in dense]
        return tf.reduce_all(verdicts + rows)
    # One operation for each, and no temporary; XLA has none for it.
    reports = [
        tf.raw_ops.DebugNumericSummaryV2(
            input=tensor, output_dtype=tf.float32, tensor_debug_mode=_CURT_HEALTH, tensor_id=0
        )
        for tensor in dense
    ]
    return tf.reduce_all([tf.add_n(reports)[1] == 0, *rows])


def global_norm_is_finite(tensors: list[Any]) -> Any:
    """Tells whether the sum of all squares is finite, which NaN and infinity never leave.

    Args:
        tensors: Float tensors of any shape, or `tf.IndexedSlices`.

    Returns:
        A bool scalar. True for no tensors at all.
    """
    if not tensors:
        return tf.constant(True)
    # `l2_loss` is half the sum.
    return tf.math.is_finite(2.0 * tf.add_n([_half_of_squares(tensor) for tensor in tensors]))


def divided_by(tensor: Any, divisor: Any) -> Any:
    """Divides a tensor or `tf.IndexedSlices`, in float32 at least.

    A half-precision quotient would lose what the scale was there to keep.
    """
    if isinstance(tensor, tf.IndexedSlices):
        values = divided_by(tensor.values, divisor)
        return tf.IndexedSlices(values, tensor.indices, tensor.dense_shape)
    wide = _widened(tensor)
    return wide / tf.cast(divisor, wide.dtype)


def _rows_are_finite(slices: Any) -> Any:
    """Adds up the slices of each row, unless they are too small to overflow."""
    if slices.dense_shape is None:
        return tf.constant(True)
    values = _widened(slices.values)

    def ask_each_row() -> Any:
        rows = tf.math.unsorted_segment_sum(values, slices.indices, slices.dense_shape[0])
        return tf.reduce_all(tf.math.is_finite(rows))

    # Finite squares are far below the largest number.
    is_small = tf.math.is_finite(_half_of_squares(values))
    return tf.cond(is_small, lambda: tf.constant(True), ask_each_row)


def _half_of_squares(tensor: Any) -> Any:
    values = tensor.values if isinstance(tensor, tf.IndexedSlices) else tensor
    return tf.cast(tf.nn.l2_loss(_widened(values)), tf.float32)


def _widened(tensor: Any) -> Any:
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)
