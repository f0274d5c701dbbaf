"""Batches of a few samples, real ones or made up."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit.data.changes import UNKNOWN_DIMENSION, fixed_shape
from tf_amp_kit.data.specs import first_inputs

__all__ = ["tiny_batch"]


def tiny_batch(inputs: Any, specs: Any, size: int = 2) -> Any:
    """Makes a batch of a few samples.

    Args:
        inputs: What the user gave, or None: the first samples are taken from it
            where it holds data.
        specs: Its specs: where it holds no data, ones and zeros of this kind.
        size: The number of samples.

    Returns:
        Tensors in the structure of `specs`.
    """
    inputs = first_inputs(inputs)
    try:
        return tf.nest.map_structure(lambda spec, value: _head(spec, value, size), specs, inputs)
    except (TypeError, ValueError):
        return tf.nest.map_structure(lambda spec: _filler(spec, size), specs)


def _head(spec: Any, value: Any, size: int) -> Any:
    if isinstance(value, tf.TypeSpec | keras.KerasTensor) or value is None:
        raise TypeError("a spec holds no data")
    if isinstance(value, tf.SparseTensor):
        return tf.sparse.slice(value, [0] * value.shape.rank, [size, *value.shape[1:]])
    if isinstance(value, tf.RaggedTensor):
        return value[:size]
    return tf.convert_to_tensor(value[:size], spec.dtype)


def _filler(spec: Any, size: int) -> Any:
    if isinstance(spec, tf.RaggedTensorSpec):
        rows = [1] * spec.ragged_rank
        inner = [UNKNOWN_DIMENSION if n is None else n for n in spec.shape[len(rows) + 1 :]]
        values = tf.zeros([size, *rows, *inner], spec.dtype)
        return tf.RaggedTensor.from_tensor(values, ragged_rank=spec.ragged_rank)
    shape = fixed_shape(spec.shape, size)
    shape[:1] = [min(length, size) for length in shape[:1]]
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.sparse.from_dense(tf.ones(shape, spec.dtype))
    if spec.dtype == tf.string:
        return tf.fill(shape, "")
    # Ones rather than zeros: divisions and logarithms stay finite.
    return tf.ones(shape, spec.dtype) if spec.dtype.is_floating else tf.zeros(shape, spec.dtype)
