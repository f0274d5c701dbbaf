"""The state of a model as arrays: to keep it, to compare it, to go on from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tf_amp_kit.comparison.training.record.parts import Drift
from tf_amp_kit.tracing.paths import LayerPaths, held_by

__all__ = ["all_variables", "as_arrays", "drift_between"]


def all_variables(model: Any) -> list[Any]:
    """Returns what a run goes on from: weights, seeds and the variables of optimizers."""
    held = [value for _, layer in LayerPaths(model) for _, value in held_by(layer)]
    optimizers = [one for one in (model.optimizer, *held) if hasattr(one, "apply_gradients")]
    own = [variable for one in optimizers for variable in one.variables]
    found = {id(variable): variable for variable in (*model.variables, *own)}
    return list(found.values())


def as_arrays(variables: Any) -> list[NDArray[Any]]:
    """Returns the values of variables, those in half precision as float32."""
    return list(each_array(variables))


def each_array(variables: Any) -> Iterator[NDArray[Any]]:
    """Yields the values of variables, those in half precision as float32."""
    for variable in variables:
        value = tf.convert_to_tensor(variable.value)
        # NumPy's files do not know bfloat16.
        is_half = value.dtype.is_floating and value.dtype.size < 4
        yield (tf.cast(value, tf.float32) if is_half else value).numpy()


def drift_between(
    step: int,
    weights: Iterable[NDArray[Any]],
    there: Iterable[NDArray[Any]],
    start: Iterable[NDArray[Any]],
) -> Drift:
    """Compares the weights of two runs, one after the other.

    Args:
        step: After how many steps.
        weights: Those of the one run.
        there: Those of the float32 run.
        start: What both started from.

    Example:

    >>> one = [np.array([3.0, 4.0])]
    >>> drift_between(5, one, [np.array([3.0, 3.0])], [np.array([3.0, 1.0])]).of_the_way
    0.5
    """
    squares = np.zeros(3)
    with np.errstate(all="ignore"):
        for one, other, first in zip(weights, there, start, strict=True):
            if one.dtype.kind == "f":
                wide = other.astype(np.float64)
                squares += [np.sum(np.square(each)) for each in (one - wide, wide - first, wide)]
    apart, way, norm = (math.sqrt(one) for one in squares)
    return Drift(step, _over(apart, norm), _over(apart, way))


def _over(value: float, norm: float) -> float:
    return value / norm if norm else math.nan
