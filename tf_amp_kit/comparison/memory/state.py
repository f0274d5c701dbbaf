"""What stays from step to step: weights, gradients of them, and the optimizer's slots.

Nothing is allocated: seven billion weights are counted like seven.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.tracing.paths import LayerPaths, variable_paths

__all__ = ["WeightSpec", "num_bytes", "optimizer_of", "slot_sizes", "weight_specs"]


@dataclass(frozen=True)
class WeightSpec:
    """What a weight is, without its values.

    Attributes:
        path: The weight's path, `"dense/kernel"` for example.
        shape: Its shape.
        dtype: What it is stored in.
        is_trainable: Whether the optimizer updates it.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    is_trainable: bool = True

    @property
    def size_bytes(self) -> int:
        """Its size in bytes."""
        return num_bytes(self.shape, self.dtype)


def num_bytes(shape: Iterable[int], dtype: str) -> int:
    """Returns the size of a dense tensor.

    Example:

    >>> num_bytes((3, 2), "bfloat16")
    12
    """
    return math.prod(shape) * int(tf.as_dtype(dtype).size)


def weight_specs(model: Any) -> tuple[WeightSpec, ...]:
    """Describes every variable of a built model, seeds and statistics included."""
    trainable = {id(variable) for variable in model.trainable_variables}
    return tuple(
        WeightSpec(path, tuple(variable.shape), str(variable.dtype), id(variable) in trainable)
        for variable, path in variable_paths(LayerPaths(model))
    )


def optimizer_of(optimizer: Any, accumulation_steps: int | None = None) -> Any:
    """Makes an optimizer like another one, without variables for any weight.

    Args:
        optimizer: A name, a config, or an instance, which stays as it is.
        accumulation_steps: Over how many steps gradients are added up instead; None
            for the optimizer's own.

    Raises:
        OptimizerError: If it is none, or cannot be made from its config.
    """
    try:
        found = keras.optimizers.get(dict(optimizer) if isinstance(optimizer, dict) else optimizer)
        config = found.get_config()
        if accumulation_steps is not None:
            _innermost(config)["gradient_accumulation_steps"] = (
                accumulation_steps if accumulation_steps > 1 else None
            )
        return type(found).from_config(config)
    except (ValueError, TypeError, AttributeError, NotImplementedError) as error:
        raise OptimizerError(
            "Expected the name of a Keras optimizer, a config, or a keras.optimizers.Optimizer "
            f"that its config makes again. Received: optimizer={optimizer!r}. {error}"
        ) from error


def _innermost(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("inner_optimizer")
    return _innermost(inner["config"]) if isinstance(inner, dict) else config


def slot_sizes(optimizer: Any, weights: Sequence[WeightSpec]) -> list[int]:
    """Measures the variables that an optimizer makes for some weights.

    A copy of the optimizer is built for stand-ins of the weights in a graph that never
    runs, where variables have shapes and no memory. So whatever an optimizer keeps is
    counted: momenta, averages, what Adafactor factors, accumulated gradients, the state
    of loss scaling.

    Args:
        optimizer: A name, a config, or an instance, which stays as it is.
        weights: The weights; those that are not trainable have no slots.

    Returns:
        The size of each in bytes.

    Raises:
        OptimizerError: As `optimizer_of`.

    Example:

    >>> sum(slot_sizes("adam", [WeightSpec("kernel", (100_000, 70_000))])) // 10**9
    56
    """
    found = optimizer_of(optimizer)
    config = found.get_config()  # reads values, which a graph does not have
    trainable = [one for one in weights if one.is_trainable]
    with tf.Graph().as_default():
        copy = type(found).from_config(config)
        copy.build([_stand_in(one) for one in trainable])
        return [num_bytes(one.shape, str(one.dtype)) for one in copy.variables]


def _stand_in(weight: WeightSpec) -> keras.Variable:
    name = weight.path.rpartition("/")[2]
    return keras.Variable("zeros", shape=weight.shape, dtype=weight.dtype, name=name)
