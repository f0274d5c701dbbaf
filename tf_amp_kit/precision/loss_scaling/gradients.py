"""Gradients on their way to the inner optimizer: divided by the scale, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.loss_scaling.finite import all_finite, divided_by, global_norm_is_finite

__all__ = ["Treatment", "are_applicable", "divided", "treatment_by"]


@dataclass(frozen=True)
class Treatment:
    """What is done to a gradient after it was divided by the scale.

    Args:
        factor: How many gradients are added up, over replicas and accumulated
            steps, or by how much one is multiplied; at least 1.
        clips_global_norm: Whether the squares of all gradients are added up.
    """

    factor: float
    clips_global_norm: bool


def treatment_by(optimizer: Any, num_replicas: int) -> Treatment:
    """Tells what an optimizer, or one of the optimizers inside, does to gradients.

    Clipping by norm multiplies by the norm before it divides. Gradients of
    replicas are added up, and so are those of accumulated steps.
    """
    optimizers = [optimizer, *getattr(optimizer, "optimizers", ())]
    clipnorm = max(1.0, *(one.clipnorm or 1.0 for one in optimizers))
    num_steps = max(one.gradient_accumulation_steps or 1 for one in optimizers)
    return Treatment(
        factor=clipnorm * num_steps * num_replicas,
        clips_global_norm=any(one.global_clipnorm for one in optimizers),
    )


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
        grad if grad is None or _overwrites(owner) else divided_by(grad, scale)
        for grad, owner in zip(grads, owners, strict=True)
    ]


def are_applicable(
    grads: Sequence[Any],
    variables: Sequence[Any],
    *,
    scale: Any,
    smallest_scale: float,
    treatment: Treatment,
) -> Any:
    """Tells whether the inner optimizer can take gradients and stay finite.

    As a rule that is whether they are finite. Where a scale below 1, sums, a
    norm, or a variable in half precision could make infinity of finite
    gradients, it is whether they stay finite.

    Args:
        grads: Gradients before the division: tensors, `tf.IndexedSlices`, None.
        variables: The variables that they are for.
        scale: A float32 scalar, 1 for gradients that are not scaled.
        smallest_scale: The least that the scale can be.
        treatment: What follows the division.

    Returns:
        A bool scalar.
    """
    present = [
        (grad, variable)
        for grad, variable in zip(grads, variables, strict=True)
        if grad is not None
    ]

    def as_they_come() -> list[Any]:
        # Slices of one row are added up after the division.
        return [
            _at_its_largest(grad, variable, scale, treatment.factor)
            if isinstance(grad, tf.IndexedSlices)
            else grad
            for grad, variable in present
        ]

    def enlarged() -> list[Any]:
        return [_at_its_largest(*pair, scale, treatment.factor) for pair in present]

    if treatment.clips_global_norm:
        return global_norm_is_finite([_at_its_largest(*pair, scale, 1.0) for pair in present])
    if any(_is_stored_in_half(variable) for _, variable in present):
        return all_finite(enlarged())
    if smallest_scale >= treatment.factor:
        return all_finite(as_they_come())
    # The division makes up for what follows, as long as the scale is no smaller.
    return tf.cond(
        scale >= treatment.factor,
        lambda: all_finite(as_they_come()),
        lambda: all_finite(enlarged()),
    )


def _at_its_largest(grad: Any, variable: Any, scale: Any, factor: float) -> Any:
    if _overwrites(variable):
        return grad
    if isinstance(grad, tf.IndexedSlices):
        shape = tf.constant(tuple(variable.shape), grad.indices.dtype)
        grad = tf.IndexedSlices(grad.values, grad.indices, shape)
    largest = divided_by(grad, scale / factor)
    # The inner optimizer casts to the variable's dtype, and half overflows early.
    return tf.cast(largest, variable.dtype) if _is_stored_in_half(variable) else largest


def _is_stored_in_half(variable: Any) -> bool:
    return is_half(tf.as_dtype(variable.dtype).name)


def _overwrites(variable: Any) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))
