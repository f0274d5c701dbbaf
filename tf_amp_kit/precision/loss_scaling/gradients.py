"""Gradients on their way to the inner optimizer: divided by the scale, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.formats import format_of
from tf_amp_kit.precision.loss_scaling.finite import (
    Bounded,
    all_within,
    divided_by,
    sum_of_squares_is_finite,
)

__all__ = ["Treatment", "are_applicable", "as_gradients", "divided", "treatment_by"]

# How many squares a second moment may add up: those of steps, or of a row.
_NUM_SQUARES: Final = 1024

# What is clipped to less than this has squares far below the largest, 3e38.
_SMALL: Final = 1e17


@dataclass(frozen=True)
class Treatment:
    """What is done to a gradient after it was divided by the scale.

    Args:
        factor: How many gradients are added up, over replicas and accumulated
            steps, or by how much one is multiplied; at least 1.
        is_squared: Whether elements may be squared, as for Adam's second moment:
            by every optimizer but SGD. An infinite square is NaN a step later.
        clips_global_norm: Whether the squares of all gradients are added up.
    """

    factor: float
    is_squared: bool
    clips_global_norm: bool


def treatment_by(optimizer: Any, num_replicas: int) -> Treatment:
    """Tells what an optimizer, or one of the optimizers inside, does to gradients.

    Clipping by norm multiplies by the norm before it divides. Whatever clips
    leaves nothing whose square could overflow.
    """
    optimizers = list(getattr(optimizer, "optimizers", ())) or [optimizer]
    clipnorm = max(1.0, *(one.clipnorm or 1.0 for one in optimizers))
    num_steps = max(one.gradient_accumulation_steps or 1 for one in optimizers)
    return Treatment(
        factor=clipnorm * num_steps * num_replicas,
        is_squared=any(
            not isinstance(one, keras.optimizers.SGD)
            and not 0 < (one.clipnorm or one.clipvalue or 0) < _SMALL
            for one in optimizers
        ),
        clips_global_norm=any(one.global_clipnorm for one in optimizers),
    )


def as_gradients(grads: Sequence[Any]) -> list[Any]:
    """Makes tensors of whatever else stands for gradients; leaves slices and None."""
    return [
        grad if grad is None or isinstance(grad, tf.IndexedSlices) else tf.convert_to_tensor(grad)
        for grad in grads
    ]


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
    grads: Sequence[Any], variables: Sequence[Any], scale: Any, treatment: Treatment
) -> Any:
    """Tells whether the inner optimizer can take gradients and stay finite.

    As a rule that is whether they are finite. Where the division by a small
    scale, sums, squares, or a variable in half precision could make infinity of
    finite gradients, it is whether they stay finite.

    Args:
        grads: Gradients before the division: tensors, `tf.IndexedSlices`, None.
        variables: The variables that they are for.
        scale: A float32 scalar, 1 for gradients that are not scaled.
        treatment: What follows the division.

    Returns:
        A bool scalar.
    """
    present = [
        (_with_shape(grad, variable), variable)
        for grad, variable in zip(grads, variables, strict=True)
        if grad is not None
    ]
    if treatment.clips_global_norm:
        tensors = [grad for grad, _ in present]
        return sum_of_squares_is_finite(divided(tensors, scale, [owner for _, owner in present]))
    return all_within(
        [Bounded(grad, _limit(variable, treatment)) for grad, variable in present], scale
    )


def _limit(variable: Any, treatment: Treatment) -> float:
    """The largest value that survives the variable's dtype, and what is done to it there."""
    name = tf.as_dtype(variable.dtype).name
    kind = format_of("float32" if name == "float64" else name)
    # The cast to the variable's dtype rounds, so half a step more than its largest survives.
    step = kind.largest / (2 - kind.epsilon) * kind.epsilon
    largest = kind.largest if name in ("float32", "float64") else kind.largest + step / 2.001
    if treatment.is_squared:
        largest = float(np.sqrt(kind.largest / _NUM_SQUARES))
    return largest / treatment.factor


def _with_shape(grad: Any, variable: Any) -> Any:
    if not isinstance(grad, tf.IndexedSlices):
        return grad
    shape = tf.constant(tuple(variable.shape), grad.indices.dtype)
    return tf.IndexedSlices(grad.values, grad.indices, shape)


def _overwrites(variable: Any) -> bool:
    return bool(getattr(variable, "overwrite_with_gradient", False))
