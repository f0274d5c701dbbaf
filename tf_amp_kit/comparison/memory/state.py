"""What stays from step to step: weights, gradients of them, and the optimizer's slots.

Nothing is allocated: seven billion weights are counted like seven.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.tracing.paths import LayerPaths, variable_paths

__all__ = [
    "BuiltOptimizer",
    "WeightSpec",
    "num_bytes",
    "optimizer_of",
    "slot_sizes",
    "weight_specs",
]


@dataclass(frozen=True)
class WeightSpec:
    """What a weight is, without its values.

    Attributes:
        path: The weight's path, `"dense/kernel"` for example.
        shape: Its shape.
        dtype: What it is stored in.
        is_trainable: Whether the optimizer updates it.
        variable_path: Keras's own path of it, which some optimizers choose by; empty for
            `path`.
        constraint: What is done to it after each update, if anything.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    is_trainable: bool = True
    variable_path: str = ""
    constraint: Any = None

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
        WeightSpec(
            path,
            tuple(variable.shape),
            str(variable.dtype),
            id(variable) in trainable,
            getattr(variable, "path", ""),
            getattr(variable, "constraint", None),
        )
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


@dataclass(frozen=True)
class BuiltOptimizer:
    """An optimizer with its variables, and weights to update, none of which has memory.

    Attributes:
        optimizer: The optimizer.
        weights: What stands for the trainable weights, by their paths.
    """

    optimizer: Any
    weights: dict[str, keras.Variable]

    @classmethod
    def of(cls, optimizer: Any, weights: Sequence[WeightSpec]) -> BuiltOptimizer:
        """Builds a copy of an optimizer for stand-ins of some weights.

        They belong to a graph that never runs, where variables have shapes and no memory.

        Raises:
            OptimizerError: As `optimizer_of`.
        """
        found = optimizer_of(optimizer)
        config = found.get_config()  # reads values, which a graph does not have
        with tf.Graph().as_default():
            copy = type(found).from_config(config)
            stand_ins = {one.path: _stand_in(one) for one in weights if one.is_trainable}
            copy.build(list(stand_ins.values()))
        return cls(copy, stand_ins)

    @property
    def slot_sizes(self) -> list[int]:
        """The size of each of the optimizer's variables in bytes."""
        return [num_bytes(one.shape, str(one.dtype)) for one in self.optimizer.variables]


def slot_sizes(optimizer: Any, weights: Sequence[WeightSpec]) -> list[int]:
    """Measures the variables that an optimizer makes for some weights.

    Whatever an optimizer keeps is counted: momenta, averages, what Adafactor factors,
    accumulated gradients, the state of loss scaling.

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
    return BuiltOptimizer.of(optimizer, weights).slot_sizes


def _stand_in(weight: WeightSpec) -> keras.Variable:
    *scopes, name = (weight.variable_path or weight.path).split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        variable = keras.Variable("zeros", shape=weight.shape, dtype=weight.dtype, name=name)
    variable.constraint = weight.constraint
    return variable
