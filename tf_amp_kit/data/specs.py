"""Shapes and dtypes of every accepted form of example data, and tiny batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.errors import InputsError

__all__ = ["batch_specs", "first_inputs", "input_specs"]

_WAYS: Final = (
    "Expected arrays, tensors, `tf.TensorSpec`s, a `tf.data.Dataset`, a "
    "`keras.utils.PyDataset`, or shapes such as `(None, 28, 28, 1)`; or lists or "
    "dictionaries of arrays, tensors, specs or shapes."
)


def input_specs(inputs: Any) -> Any:
    """Describes example inputs by shape and dtype, with an open batch size.

    Args:
        inputs: Arrays, tensors (sparse and ragged too), `tf.TensorSpec`s, Keras
            tensors, a dataset of `x` or `(x, y[, sample_weight])`, a
            `PyDataset`, shapes (read as float32, with the batch first), or
            lists, tuples and dictionaries of arrays, tensors, specs or shapes.
            float64 arrays count as float32, as in `fit`.

    Returns:
        The same structure, of `tf.TypeSpec`s.

    Raises:
        InputsError: If something is none of these.

    Example:

    >>> input_specs(np.zeros((4, 3)))
    TensorSpec(shape=(None, 3), dtype=tf.float32, name=None)
    >>> input_specs({"ids": (None, 7)})["ids"].shape
    TensorShape([None, 7])
    """
    if isinstance(inputs, tf.data.Dataset):
        return _without_targets(inputs.element_spec)
    if isinstance(inputs, keras.utils.PyDataset):
        return input_specs(_without_targets(inputs[0]))
    if isinstance(inputs, tf.TypeSpec):
        return inputs
    if isinstance(inputs, keras.KerasTensor):
        return _spec_of_keras_tensor(inputs)
    if _is_shape(inputs):
        return tf.TensorSpec(inputs, tf.float32)
    if isinstance(inputs, Mapping):
        return {key: input_specs(value) for key, value in inputs.items()}
    if isinstance(inputs, list | tuple) and not _is_plain_array(inputs):
        return type(inputs)(input_specs(value) for value in inputs)
    return _spec_of_array(inputs)


def batch_specs(data: Any) -> tuple[Any, Any, Any]:
    """Describes training data: inputs, targets and sample weights.

    Args:
        data: A dataset or `PyDataset` of batches, or a tuple `(x, y)` or
            `(x, y, sample_weight)` of whatever `input_specs` takes.

    Returns:
        The specs of `x`, `y` and `sample_weight`; None for what is not there.

    Raises:
        InputsError: If something is none of these.

    Example:

    >>> x, y, sample_weight = batch_specs((np.zeros((4, 3)), np.zeros(4, "int32")))
    >>> y, sample_weight
    (TensorSpec(shape=(None,), dtype=tf.int32, name=None), None)
    """
    if isinstance(data, tf.data.Dataset):
        batch = _as_tuple(data.element_spec)
    elif isinstance(data, keras.utils.PyDataset):
        batch = _as_tuple(data[0])
    else:
        batch = data
    if not isinstance(batch, tuple) or len(batch) not in (1, 2, 3) or _is_shape(batch):
        raise InputsError(
            "The data cannot be read. Expected `(x, y)` or `(x, y, sample_weight)`, or a "
            f"dataset of these. Received: data of type {type(data).__name__}."
        )
    x, y, sample_weight = (*batch, None, None)[:3]
    return (
        input_specs(x),
        None if y is None else input_specs(y),
        None if sample_weight is None else input_specs(sample_weight),
    )


def first_inputs(data: Any) -> Any:
    """Takes the inputs of the first batch out of a dataset.

    Args:
        data: A dataset or `PyDataset` of `x` or `(x, y[, sample_weight])`; or
            anything else, which is taken for the inputs themselves.

    Returns:
        The inputs.

    Example:

    >>> batches = tf.data.Dataset.from_tensors((np.zeros((4, 3)), np.zeros(4)))
    >>> first_inputs(batches).shape
    TensorShape([4, 3])
    """
    if isinstance(data, tf.data.Dataset):
        return _without_targets(next(iter(data)))
    if isinstance(data, keras.utils.PyDataset):
        return _without_targets(data[0])
    return data


def _as_tuple(element: Any) -> tuple[Any, ...]:
    return element if isinstance(element, tuple) else (element,)


def _without_targets(element: Any) -> Any:
    return element[0] if isinstance(element, tuple) and len(element) in (1, 2, 3) else element


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, tuple | tf.TensorShape)
        and len(value) > 0
        and all(size is None or (isinstance(size, int) and size >= 0) for size in value)
    )


def _is_plain_array(value: Any) -> bool:
    flat = tf.nest.flatten(value)
    return bool(flat) and all(isinstance(item, int | float | str | bytes) for item in flat)


def _spec_of_keras_tensor(tensor: Any) -> tf.TypeSpec:
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(tensor.shape, tensor.dtype)
    if getattr(tensor, "ragged", False):
        rank = getattr(tensor, "ragged_rank", None) or 1
        return tf.RaggedTensorSpec(tensor.shape, tensor.dtype, ragged_rank=rank)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _spec_of_array(value: Any) -> tf.TypeSpec:
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensorSpec(
            [None, *value.shape[1:]], value.dtype, ragged_rank=value.ragged_rank
        )
    if isinstance(value, tf.SparseTensor):
        return tf.SparseTensorSpec([None, *value.shape[1:]], value.dtype)
    kind = type(value).__name__
    if not tf.is_tensor(value):
        try:
            value = np.asarray(value)
            if value.dtype.kind == "O" and value.ndim == 0:
                raise TypeError("an object is no array")
            dtype = tf.string if value.dtype.kind in "USO" else tf.as_dtype(value.dtype)
        except (TypeError, ValueError):
            raise InputsError(
                f"The example inputs cannot be read. {_WAYS} Received: inputs of type {kind}."
            ) from None
    else:
        dtype = value.dtype
    if value.ndim == 0:
        raise InputsError(
            f"The example inputs need a batch dimension. {_WAYS} Received: a scalar, {value!r}."
        )
    return tf.TensorSpec([None, *value.shape[1:]], tf.float32 if dtype == tf.float64 else dtype)
