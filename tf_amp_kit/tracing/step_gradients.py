"""What is made of the gradients of a step before anybody looks at them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_amp_kit.formats import width

__all__ = ["before_cast", "summed_rows"]


def before_cast(gradient: Any) -> Any:
    """Takes back the cast of a gradient to the dtype of a half-precision variable."""
    if isinstance(gradient, tf.IndexedSlices):
        values = before_cast(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if gradient is None or gradient.op.type != "Cast":
        return gradient
    wide = gradient.op.inputs[0]
    return wide if width(wide.dtype.name) > width(gradient.dtype.name) else gradient


def summed_rows(gradients: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Adds up the rows of sparse gradients that are of one index, as optimizers do.

    Args:
        gradients: Pairs of a variable and its gradient.

    Returns:
        The same with dense gradients.
    """
    return [(variable, _dense(gradient)) for variable, gradient in gradients]


def _dense(gradient: Any) -> Any:
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows = tf.cast(gradient.values, tf.float32)
    return tf.math.unsorted_segment_sum(rows, gradient.indices, gradient.dense_shape[0])
