"""What a model is called with when it is looked at."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.data import input_specs, with_batch_size, with_float_dtype
from tf_amp_kit.errors import InputsError, ModelError

_WAYS = (
    "Pass `inputs=` with a batch of data, `tf.TensorSpec`s, a `tf.data.Dataset` or a shape; "
    "or call the model on a batch first."
)


@dataclass(frozen=True)
class CallSpecs:
    """The arguments of one model call, as specs.

    Attributes:
        args: Positional arguments, structures of `tf.TypeSpec`s.
        kwargs: Keyword arguments, likewise.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def map(self, change: Any, *details: Any) -> CallSpecs:
        """Applies one of the functions of `data` to every argument."""
        return CallSpecs(
            tuple(change(value, *details) for value in self.args),
            {key: change(value, *details) for key, value in self.kwargs.items()},
        )


def candidate_specs(model: Any, inputs: Any) -> Iterator[CallSpecs]:
    """Yields what to call a model with, the likeliest first.

    Given inputs and the inputs of graph models have dtypes. A subclassed model
    remembers only the shapes that it was built with: they are tried as float32
    first, then as int32. Last comes a fixed batch size, for models that read it.

    Args:
        model: A Keras model.
        inputs: What the user gave, or None.

    Yields:
        One set of arguments after the other.

    Raises:
        InputsError: If nothing is known of the inputs, or they do not fit.
        ModelError: If the model is not built, and no inputs are given.
    """
    specs, dtype_is_known = _known_specs(model, inputs)
    yield specs
    if not dtype_is_known:
        yield specs.map(with_float_dtype, "int32")
    yield specs.map(with_batch_size, 2)


def accepts_training(model: Any) -> bool:
    """Tells whether `call` takes a `training` argument, as Keras's `fit` asks."""
    return "training" in inspect.signature(model.call).parameters


def _known_specs(model: Any, inputs: Any) -> tuple[CallSpecs, bool]:
    has_graph = _keras.is_functional(model) and model.built and model.inputs
    if inputs is not None:
        specs = input_specs(inputs)
        if has_graph:
            _check_fit(model, specs)
        return CallSpecs((specs,), {}), True
    if has_graph:
        structure = _keras.inputs_structure(model)
        return CallSpecs((tf.nest.map_structure(input_specs, structure),), {}), True
    if not model.built:
        raise ModelError(
            f"The model is not built, so that its inputs are unknown. {_WAYS} "
            f"Received: {type(model).__name__} named {model.name!r}."
        )
    return _specs_of_build(model), False


def _check_fit(model: Any, specs: Any) -> None:
    given = tf.nest.flatten(specs)
    wanted = tf.nest.flatten(tf.nest.map_structure(input_specs, _keras.inputs_structure(model)))
    fits = len(given) == len(wanted) and all(
        a.shape.is_compatible_with(b.shape) for a, b in zip(given, wanted, strict=True)
    )
    if not fits:
        raise InputsError(
            "The example inputs do not fit the model. Expected shapes "
            f"{[tuple(spec.shape) for spec in wanted]}. "
            f"Received: inputs of shapes {[tuple(spec.shape) for spec in given]}."
        )


def _specs_of_build(model: Any) -> CallSpecs:
    config = model.get_build_config() or {}
    if config.get("input_shape") is not None:
        return CallSpecs((_float_specs(config["input_shape"]),), {})
    shapes = config.get("shapes_dict") or {}
    parameters = inspect.signature(model.call).parameters
    kwargs = {
        key.removesuffix("_shape"): _float_specs(shape)
        for key, shape in shapes.items()
        if shape is not None
    }
    if not kwargs or not set(kwargs) <= set(parameters):
        raise InputsError(
            f"The model does not tell what it takes: it has no symbolic inputs, and "
            f"`get_build_config()` holds no shapes. {_WAYS} "
            f"Received: {type(model).__name__} named {model.name!r}."
        )
    first = next(iter(parameters))
    return CallSpecs((kwargs.pop(first),) if first in kwargs else (), kwargs)


def _float_specs(shape: Any) -> Any:
    # After a load, JSON has turned the tuples of a shape into lists.
    if isinstance(shape, list) and all(size is None or isinstance(size, int) for size in shape):
        shape = tuple(shape)
    if isinstance(shape, dict):
        return {key: _float_specs(value) for key, value in shape.items()}
    if isinstance(shape, list):
        return [_float_specs(value) for value in shape]
    specs = input_specs(shape)
    if isinstance(specs, tf.TensorSpec):
        # The batch size that it happened to be built with says nothing.
        return tf.TensorSpec([None, *specs.shape[1:]], specs.dtype)
    return specs
