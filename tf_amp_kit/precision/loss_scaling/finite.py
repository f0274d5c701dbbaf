"""Whether gradients can be applied: exactly, and in few passes over them.

A gradient is refused if it is not finite, or if what the inner optimizer does to
it would make infinity of it. Both are one question: is each element, in absolute
value, at most some bound? NaN and infinity never are.

A sum of squares answers almost every step in one operation for each gradient:
where it is finite, no element is above the root of the largest number. A plain
sum would not do: XLA joins the sum of a sum into one, in which infinities of
both signs have cancelled before anyone saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.formats import format_of

__all__ = ["Bounded", "all_within", "divided_by", "infinite_as_nan", "sum_of_squares_is_finite"]

_LARGEST: Final = format_of("float32").largest

# Half the sum of squares, which `l2_loss` gives, is finite up to here.
_LARGEST_IN_A_SUM: Final = float(np.sqrt(2.0 * _LARGEST) * 1.001)


class Bounded(NamedTuple):
    """A gradient, and how large it may be.

    Attributes:
        grad: A float tensor of any shape, or `tf.IndexedSlices`, whose slices of
            one row count as their sum.
        limit: The largest absolute value that an element may have after the
            division by the scale.
    """

    grad: Any
    limit: float


def all_within(gradients: Sequence[Bounded], scale: Any) -> Any:
    """Tells whether every element, divided by the scale, is within its limit.

    Args:
        gradients: Gradients with their limits.
        scale: A float32 scalar.

    Returns:
        A bool scalar. True for no gradients at all.
    """
    if not gradients:
        return tf.constant(True)

    grads, limits = zip(*gradients, strict=True)
    # XLA makes one loop of all three operations, and a branch costs more than it saves.
    if _keras.is_compiled_by_xla():
        return _each_is_within(grads, limits, scale)
    least = _bound(min(limits), scale, _num_summed(grads))
    is_small = tf.logical_and(sum_of_squares_is_finite(grads), least >= _LARGEST_IN_A_SUM)
    if tf.executing_eagerly():
        return is_small if is_small else _each_is_within(grads, limits, scale)
    return _are_small_or_within(is_small, grads, limits, scale)


def _are_small_or_within(
    is_small: Any, grads: Sequence[Any], limits: Sequence[float], scale: Any
) -> Any:
    """Asks each element unless all are small, and costs next to nothing if they are.

    `tf.cond` takes itself apart into one switch for each gradient, which costs
    more than the answer. This condition stays one operation.
    """
    inputs = [scale, *tf.nest.flatten(list(grads), expand_composites=True)]

    # TensorFlow names placeholders after the arguments, and logs about an underscore.
    def yes(*unused: Any) -> Any:
        return tf.constant(True)

    def ask(scale: Any, *flat: Any) -> Any:
        packed = tf.nest.pack_sequence_as(list(grads), list(flat), expand_composites=True)
        return _each_is_within(packed, limits, scale)

    specs = [tf.TensorSpec(one.shape, one.dtype) for one in inputs]
    branches = [
        tf.function(branch, autograph=False).get_concrete_function(*specs) for branch in (yes, ask)
    ]
    answer = tf.raw_ops.StatelessIf(
        cond=is_small,
        input=inputs,
        Tout=[tf.bool],
        then_branch=branches[0],
        else_branch=branches[1],
    )
    return tf.ensure_shape(answer[0], ())


def sum_of_squares_is_finite(grads: Sequence[Any]) -> Any:
    """Tells whether the sum of all squares is finite, which NaN and infinity never leave.

    Args:
        grads: Float tensors of any shape, or `tf.IndexedSlices`.

    Returns:
        A bool scalar. True for no gradients at all.
    """
    if not grads:
        return tf.constant(True)
    values = [_widened(_values(grad)) for grad in grads]
    halves = [tf.cast(tf.nn.l2_loss(value), tf.float32) for value in values]
    return tf.math.is_finite(2.0 * tf.add_n(halves))


def divided_by(tensor: Any, divisor: Any) -> Any:
    """Divides a tensor or `tf.IndexedSlices`, in float32 at least.

    A half-precision quotient would lose what the scale was there to keep.
    """
    if isinstance(tensor, tf.IndexedSlices):
        values = divided_by(tensor.values, divisor)
        return tf.IndexedSlices(values, tensor.indices, tensor.dense_shape)
    wide = _widened(tensor)
    return wide / tf.cast(divisor, wide.dtype)


def infinite_as_nan(tensor: Any) -> Any:
    """Makes infinite elements NaN, in a tensor, `tf.IndexedSlices` or None."""
    if tensor is None:
        return None
    if isinstance(tensor, tf.IndexedSlices):
        values = infinite_as_nan(tensor.values)
        return tf.IndexedSlices(values, tensor.indices, tensor.dense_shape)
    return tf.where(tf.math.is_finite(tensor), tensor, tf.constant(np.nan, tensor.dtype))


def _bound(limit: float, scale: Any, num_summed: Any = 1.0) -> Any:
    """The limit before the division, for elements that are added up to so many.

    A sum of n numbers is at most the root of n times the root of their squares.
    """
    return tf.minimum(scale * limit, _LARGEST) / tf.sqrt(tf.cast(num_summed, tf.float32))


def _num_summed(grads: Sequence[Any]) -> Any:
    """How many slices one row may be the sum of, at most; 1 without slices."""
    sizes = [tf.size(grad.indices) for grad in grads if isinstance(grad, tf.IndexedSlices)]
    return tf.reduce_max([*sizes, tf.constant(1)]) if sizes else 1.0


def _each_is_within(grads: Sequence[Any], limits: Sequence[float], scale: Any) -> Any:
    pairs = zip(grads, limits, strict=True)
    return tf.reduce_all([_is_within(grad, limit, scale) for grad, limit in pairs])


def _is_within(grad: Any, limit: float, scale: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        values = divided_by(grad.values, scale)
        rows = tf.math.unsorted_segment_sum(values, grad.indices, grad.dense_shape[0])
        return _all_at_most(rows, limit)
    return _all_at_most(_widened(grad), _bound(limit, scale))


def _all_at_most(values: Any, bound: Any) -> Any:
    if values.dtype == tf.float64:  # no bound of float32's is one of float64's
        return tf.reduce_all(tf.math.is_finite(values))
    return tf.reduce_all(tf.abs(values) <= bound)


def _values(grad: Any) -> Any:
    return grad.values if isinstance(grad, tf.IndexedSlices) else grad


def _widened(tensor: Any) -> Any:
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)
