"""The state of a model as arrays: to keep it, to compare it, to go on from it."""

from __future__ import annotations

import math
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
    # NumPy's files do not know bfloat16.
    values = [tf.convert_to_tensor(one.value) for one in variables]
    return [
        (tf.cast(one, tf.float32) if one.dtype.is_floating and one.dtype.size < 4 else one).numpy()
        for one in values
    ]


def drift_between(step: int, weights: Any, there: Any, start: Any) -> Drift:
    """Compares the weights of two runs.

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
    nothing = [np.zeros(()) for _ in there]
    apart, way, norm = (
        _distance(*pair) for pair in ((weights, there), (there, start), (there, nothing))
    )
    return Drift(step, _over(apart, norm), _over(apart, way))


def _distance(weights: Any, others: Any) -> float:
    """Returns the norm of the difference of two lists of arrays."""
    total = 0.0
    with np.errstate(all="ignore"):
        for one, other in zip(weights, others, strict=True):
            if one.dtype.kind == "f":
                total += float(np.sum(np.square(one.astype(np.float64) - other)))
    return math.sqrt(total)


def _over(value: float, norm: float) -> float:
    return value / norm if norm else math.nan
