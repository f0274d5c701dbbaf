"""What a model is called with when it is looked at."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tf_amp_kit import _keras
from tf_amp_kit.data import (
    first_inputs,
    input_specs,
    with_batch_size,
    with_fixed_shape,
    with_float_dtype,
)
from tf_amp_kit.errors import InputsError, ModelError
from tf_amp_kit.tracing.numbering import keyed_leaves

_WAYS: Final = (
    "Pass `inputs=` with a batch of data, `tf.TensorSpec`s, a `tf.data.Dataset` or a shape; for "
    "a `call` with several arguments, a dictionary of these by name."
)
# `*args` and `**kwargs`, which graph models of Keras have as well.
_OPEN_KINDS: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_CONTEXT_ARGUMENTS: Final = ("self", "training", "mask")


@dataclass(frozen=True)
class CallSpecs:
    """The arguments of one model call, as specs.

    Attributes:
        args: Positional arguments, structures of `tf.TypeSpec`s.
        kwargs: Keyword arguments, likewise.
        dtypes_are_known: False where only shapes are known, and float32 is a guess.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dtypes_are_known: bool = True

    def map(self, change: Any, *details: Any) -> CallSpecs:
        """Applies one of the functions of `data` to every argument."""
        return CallSpecs(
            tuple(change(value, *details) for value in self.args),
            {key: change(value, *details) for key, value in self.kwargs.items()},
            self.dtypes_are_known,
        )


def candidate_specs(model: Any, inputs: Any) -> Iterator[CallSpecs]:
    """Yields what to call a model with, the likeliest first.

    Given inputs and the inputs of graph models have dtypes. A subclassed model
    remembers only the shapes that it was built with: they are tried as float32
    first, then as int32. Last come a fixed batch size, and fixed dimensions, for
    models that read them.

    Args:
        model: A Keras model.
        inputs: What the user gave, or None.

    Yields:
        One set of arguments after the other.

    Raises:
        InputsError: If nothing is known of the inputs, or they do not fit.
        ModelError: If the model is not built, and no inputs are given.
    """
    specs = _known_specs(model, inputs)
    _check_call(model, specs)
    yield specs
    if not specs.dtypes_are_known:
        yield specs.map(with_float_dtype, "int32")
    yield specs.map(with_batch_size, 2)
    yield specs.map(with_fixed_shape, 2)


def knows_inputs(model: Any) -> bool:
    """Tells whether a model has symbolic inputs, with shapes and dtypes."""
    # A Sequential model that could not infer shapes has none, and raises.
    return bool(_keras.is_functional(model) and model.built and getattr(model, "inputs", None))


def sample_by_input(
    model: Any, sample: Any, shapes: dict[str, tuple[int | None, ...] | None]
) -> dict[str, NDArray[Any]]:
    """Matches raw input data with the inputs of a trace.

    Args:
        model: The model.
        sample: Raw inputs in any form that `fit` takes, without targets.
        shapes: The shapes of the trace's inputs by key, in order.

    Returns:
        Numeric arrays by key.

    Raises:
        InputsError: If the inputs of both differ in number, name or shape.
    """
    keys = list(shapes)
    values = dict(keyed_leaves(first_inputs(sample)))
    names = [tensor.name for tensor in model.inputs] if knows_inputs(model) else []
    if set(values) == set(keys):
        matched = values
    elif set(values) == set(names):
        matched = {key: values[name] for key, name in zip(keys, names, strict=True)}
    elif len(values) == len(keys) and not isinstance(sample, dict):
        matched = dict(zip(keys, values.values(), strict=True))
    else:
        raise InputsError(
            f"The sample does not fit the model. Expected inputs {keys}. "
            f"Received: sample with {list(values)}."
        )
    arrays = {key: np.asarray(value) for key, value in matched.items()}
    for key, shape in shapes.items():
        if key in arrays and not _fits(arrays[key].shape, shape):
            raise InputsError(
                f"The sample does not fit the model. Expected shape {shape} for input {key!r}. "
                f"Received: sample of shape {arrays[key].shape}."
            )
    return {key: array for key, array in arrays.items() if array.dtype.kind in "fiu"}


def _fits(given: tuple[int, ...], wanted: tuple[int | None, ...] | None) -> bool:
    # Keras adds or drops a last dimension of 1, and sparse inputs come in parts.
    return (
        wanted is None
        or abs(len(given) - len(wanted)) == 1
        or (tf.TensorShape(given[1:]).is_compatible_with(wanted[1:]) and len(given) == len(wanted))
    )


def accepts_training(model: Any) -> bool:
    """Tells whether `call` takes a `training` argument, as Keras's `fit` asks."""
    return "training" in inspect.signature(model.call).parameters


def _known_specs(model: Any, inputs: Any) -> CallSpecs:
    if inputs is not None:
        specs = input_specs(inputs)
        if knows_inputs(model):
            _check_fit(model, specs)
        return _as_arguments(model, specs)
    if knows_inputs(model):
        structure = _keras.inputs_structure(model)
        return CallSpecs((tf.nest.map_structure(input_specs, structure),), {})
    if not model.built:
        raise ModelError(
            f"The model is not built, so that its inputs are unknown. {_WAYS} "
            "Or call the model on a batch first. "
            f"Received: {type(model).__name__} named {model.name!r}."
        )
    return _specs_of_build(model)


def _as_arguments(model: Any, specs: Any) -> CallSpecs:
    """Spreads inputs over the arguments of a `call` that takes several."""
    parameters = inspect.signature(model.call).parameters
    named = [
        name
        for name, one in parameters.items()
        if name not in _CONTEXT_ARGUMENTS and one.kind not in _OPEN_KINDS
    ]
    required = [name for name in named if parameters[name].default is inspect.Parameter.empty]
    is_by_name = isinstance(specs, dict) and set(required) <= set(specs) <= set(named)
    if is_by_name and len(specs) > 1:
        return CallSpecs((), specs)
    if len(required) > 1 and isinstance(specs, list | tuple) and len(specs) == len(required):
        return CallSpecs((), dict(zip(required, specs, strict=True)))
    return CallSpecs((specs,), {})


def _check_call(model: Any, specs: CallSpecs) -> None:
    try:
        inspect.signature(model.call).bind(*specs.args, **specs.kwargs)
    except TypeError as error:
        raise InputsError(
            f"The inputs do not fit `call{inspect.signature(model.call)}`: {error}. {_WAYS} "
            f"Received: {type(model).__name__} named {model.name!r}."
        ) from None


def _check_fit(model: Any, specs: Any) -> None:
    structure = _keras.inputs_structure(model)
    symbolic = tf.nest.flatten(structure)
    # Keras takes a dictionary by the keys or names of inputs, and no notice of other keys;
    # lists and tuples for each other.
    keys = sorted(structure) if isinstance(structure, dict) else [one.name for one in symbolic]
    is_by_name = isinstance(specs, dict) and len(keys) == len(symbolic)
    is_known = not is_by_name or set(keys) <= set(specs)
    given = [specs[key] for key in keys] if is_by_name and is_known else tf.nest.flatten(specs)
    wanted = [input_specs(tensor) for tensor in symbolic]
    fits = (
        is_known
        and len(given) == len(wanted)
        and all(hasattr(one, "shape") for one in given)
        and all(a.shape.is_compatible_with(b.shape) for a, b in zip(given, wanted, strict=True))
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
        return CallSpecs((_float_specs(config["input_shape"]),), {}, dtypes_are_known=False)
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
    args = (kwargs.pop(first),) if first in kwargs else ()
    return CallSpecs(args, kwargs, dtypes_are_known=False)


def _float_specs(shape: Any) -> Any:
    if isinstance(shape, dict):
        return {key: _float_specs(value) for key, value in shape.items()}
    # After a load, JSON has turned tuples into lists.
    if any(isinstance(size, list | tuple | dict) for size in shape):
        return type(shape)(_float_specs(value) for value in shape)
    # The batch size that it happened to be built with says nothing.
    return tf.TensorSpec([None, *shape[1:]], tf.float32)
