"""Gradients on their way to the inner optimizer: divided by the scale, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.loss_scaling.finite import all_finite, global_norm_is_finite

__all__ = ["are_applicable", "divided"]


def divided(grads: Sequence[Any], scale: Any, variables: Sequence[Any] | None = None) -> list[Any]:
    """Divides gradients by the loss scale, in float32 at least.

    Args:
        grads: Tensors, `tf.IndexedSlices` or None.
        scale: A float32 scalar.
        variables: The variables that they are for, if known. Some of Keras's
            are overwritten by what stands in for their gradient, unscaled.

    Returns:
        A list of the same kinds, float32, or float64 where a gradient is.
    """
    owners = [None] * len(grads) if variables is None else variables
    return [
        grad if grad is None or _overwrites(owner) else _divide(grad, scale)
        for grad, owner in zip(grads, owners, strict=True)
    ]


def are_applicable(
    grads: Sequence[Any],
    variables: Sequence[Any],
    *,
    scale: Any,
    smallest_scale: float,
    num_sums: int,
    clips_global_norm: bool,
) -> Any:
    """Tells whether the inner optimizer can take gradients and stay finite.

    As a rule that is whether they are finite. Four things can make infinity of
    finite gradients on the way, and are part of the answer where they occur: a
    scale below 1, sums over replicas or accumulated steps, variables stored in
    half precision, and a global norm, which adds up squares.

    Args:
        grads: Scaled gradients: tensors, `tf.IndexedSlices` or None.
        variables: The variables that they are for.
        scale: A float32 scalar.
        smallest_scale: The least that the scale can be.
        num_sums: How many such lists are added up: replicas, times steps of
            gradient accumulation.
        clips_global_norm: Whether the inner optimizer clips by the global norm.

    Returns:
        A bool scalar.
    """
    can_grow = smallest_scale < 1 or num_sums > 1
    tensors = []
    for grad, variable in zip(grads, variables, strict=True):
        if grad is None:
            continue
        is_stored_in_half = can_grow and is_half(tf.as_dtype(variable.dtype).name)
        needs_division = smallest_scale < 1 or clips_global_norm or is_stored_in_half
        if needs_division and not _overwrites(variable):
            grad = _divide(grad, scale)
        if is_stored_in_half:
            grad = tf.cast(grad * num_sums, variable.dtype)
        tensors.append(grad)
    if clips_global_norm:
        return global_norm_is_finite(tensors)
    return all_finite(tensors, headroom=num_sums)


def _overwrites(variable: Any) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))


def _divide(grad: Any, scale: Any) -> Any:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_divide(grad.values, scale), grad.indices, grad.dense_shape)
    # A half-precision quotient would lose what the scale was there to keep.
    dtype = tf.float64 if grad.dtype == tf.float64 else tf.float32
    return tf.cast(grad, dtype) / tf.cast(scale, dtype)
