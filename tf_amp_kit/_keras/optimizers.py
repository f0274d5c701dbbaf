"""Private names of Keras and TensorFlow about optimizers and distribution."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def replicas_need_no_merge_call() -> bool:
    """Tells whether replicas reduce by themselves, without meeting in one call.

    Uses `tf.__internal__.distribute.strategy_supports_no_merge_call`: Keras's
    optimizers ask it too, and both must take the same way.
    """
    return bool(tf.__internal__.distribute.strategy_supports_no_merge_call())


def own_non_trainable_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer itself created as not trainable.

    Uses `Layer._non_trainable_variables`: the public list holds those of the
    sublayers too, and in a frozen layer every weight.
    """
    return list(getattr(layer, "_non_trainable_variables", ()))


def trainable_variables_of(optimizer: Any) -> list[Any]:
    """Returns the variables that an optimizer was built for.

    Uses `Optimizer._trainable_variables`: what is public lists its own state.
    """
    return list(optimizer._trainable_variables)
