"""Whether gradients are finite: exactly, and in few passes over them.

A sum of finite numbers is finite unless it overflows, and one that holds NaN or
infinity never is. So the sum of all gradients answers almost every step; where
it is not finite, each element is asked.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["all_finite", "global_norm_is_finite"]


def all_finite(tensors: list[Any], *, headroom: int = 1) -> Any:
    """Tells whether every element is finite, also after adding up its copies.

    Args:
        tensors: Float tensors of any shape, or `tf.IndexedSlices`.
        headroom: How many such lists will be added up: replicas, say. With
            more than one, an element counts as finite if that many times it is.

    Returns:
        A bool scalar. True for no tensors at all.
    """
    if not tensors:
        return tf.constant(True)
    quick = tf.math.is_finite(tf.add_n([_quick_sum(tensor, headroom) for tensor in tensors]))
    return tf.cond(
        quick,
        lambda: tf.constant(True),
        lambda: tf.reduce_all([_each_is_finite(tensor, headroom) for tensor in tensors]),
    )


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
    return tf.math.is_finite(2.0 * tf.add_n([_sum_of_squares(tensor) for tensor in tensors]))


def _quick_sum(tensor: Any, headroom: int) -> Any:
    """A float32 scalar that is finite only if the exact answer is yes."""
    if isinstance(tensor, tf.IndexedSlices) or headroom > 1:
        # Elements will be added to each other, so a plain sum could cancel
        # what those sums will not. Squares cannot cancel, and overflow early.
        return _sum_of_squares(tensor)
    return tf.cast(tf.reduce_sum(_widened(tensor)), tf.float32)


def _sum_of_squares(tensor: Any) -> Any:
    values = tensor.values if isinstance(tensor, tf.IndexedSlices) else tensor
    return tf.cast(tf.nn.l2_loss(_widened(values)), tf.float32)


def _each_is_finite(tensor: Any, headroom: int) -> Any:
    dense = tf.convert_to_tensor(tensor)  # adds up the slices of one row
    return tf.reduce_all(tf.math.is_finite(dense * tf.cast(headroom, dense.dtype)))


def _widened(tensor: Any) -> Any:
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)
