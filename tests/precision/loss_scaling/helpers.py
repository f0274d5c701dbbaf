"""What several tests of loss scaling step, look at and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.precision.loss_scaling.finite import Bounded, all_within

INF, NAN = float("inf"), float("nan")

# Finite in float32, and not any more once it is added to itself.
HUGE = 3e38

# XLA of TensorFlow 2.17 folds two casts into none, and clips NaN to a bound.
HAS_OLD_XLA = tuple(int(part) for part in tf.__version__.split(".")[:2]) < (2, 18)


def is_usable(name: str) -> bool:
    """Whether this Keras has an optimizer; the Muon of 3.10 fails by itself."""
    is_broken = name == "Muon" and keras.__version__.startswith("3.10.")
    return hasattr(keras.optimizers, name) and not is_broken


MODES = ("eager", "graph", "jit")
in_each_mode = pytest.mark.parametrize("mode", MODES)


def in_mode(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """Compiles a function as a mode says."""
    return function if mode == "eager" else tf.function(function, jit_compile=mode == "jit")


def all_finite(tensors: Iterable[Any]) -> Any:
    """Asks for elements up to the largest of float32: for finite ones, that is."""
    largest = float(np.finfo(np.float32).max)
    return all_within([Bounded(one, largest) for one in tensors], tf.constant(1.0))


def variable(*values: float, dtype: str = "float32", **kwargs: Any) -> keras.Variable:
    return keras.Variable(np.array(values), dtype=dtype, **kwargs)


def constant(*values: float, dtype: str = "float32") -> tf.Tensor:
    return tf.constant(values, dtype)


def scaled(inner: Any = None, **settings: Any) -> amp.LossScaleOptimizer:
    """An optimizer that has scaled a loss, so that `apply` has nothing to tell."""
    optimizer = amp.LossScaleOptimizer(inner or keras.optimizers.SGD(1.0), **settings)
    optimizer.scale_loss(1.0)
    return optimizer


def feed(optimizer: Any, target: Any, *grads: float) -> None:
    """Applies scaled gradients for one variable, one after another."""
    for grad in grads:
        optimizer.apply([tf.fill(target.shape, grad)], [target])


def bits(*owners: Any) -> list[bytes]:
    """Everything that a skip must leave alone, bit by bit: NaN equals itself there.

    Args:
        *owners: Models, optimizers (their inner one counts), or variables.
    """
    return [
        np.asarray(keras.ops.convert_to_numpy(one)).tobytes()
        for owner in owners
        for one in _float_variables(owner)
    ]


def _float_variables(owner: Any) -> Iterable[Any]:
    if isinstance(owner, keras.Variable | tf.Variable):
        return [owner]
    if isinstance(owner, amp.LossScaleOptimizer):
        return list(owner.inner_optimizer.variables)
    return [v for v in owner.variables if "seed" not in v.path]


def told(caught: pytest.WarningsRecorder) -> list[str]:
    """The warnings of this package among those that were recorded."""
    return [str(one.message) for one in caught if issubclass(one.category, amp.errors.AmpWarning)]


# A batch to learn from, one whose gradients are not finite, and their labels.
GOOD = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)
BAD = np.where(np.arange(8).reshape(4, 2) == 5, INF, GOOD).astype(np.float32)
LABELS = np.arange(4, dtype=np.float32).reshape(4, 1)


def fit(model: keras.Model, *batches: np.ndarray, **kwargs: Any) -> Any:
    """Trains on batches in this order, one step each."""
    labels = np.tile(LABELS, (len(batches), 1))
    kwargs = {"batch_size": 4, "shuffle": False, "verbose": 0, **kwargs}
    return model.fit(np.concatenate(batches), labels, **kwargs)
