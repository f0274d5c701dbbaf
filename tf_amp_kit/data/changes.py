"""Specs with other sizes and dtypes."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

__all__ = [
    "UNKNOWN_DIMENSION",
    "fixed_shape",
    "widened_specs",
    "with_batch_size",
    "with_fixed_shape",
    "with_float_dtype",
]

#: Stands in for unknown dimensions other than the batch: large enough for the
#: strides and windows of most image models, small enough to run at once.
UNKNOWN_DIMENSION: Final = 32


def widened_specs(specs: Any, values: Any) -> Any:
    """Opens the dimensions of specs in which values differ from them.

    Args:
        specs: Specs of inputs, targets and sample weights.
        values: Tensors in the same structure, some batch.

    Returns:
        The same structure; equal to `specs` where the values fit.

    Example:

    >>> widened_specs([tf.TensorSpec((None, 3), tf.float32)], [tf.ones((2, 5))])[0].shape
    TensorShape([None, None])
    """
    if specs is None:
        return None
    if isinstance(specs, dict):
        return {key: widened_specs(spec, values[key]) for key, spec in specs.items()}
    if isinstance(specs, list | tuple):
        pairs = zip(specs, values, strict=True)
        return type(specs)([widened_specs(spec, value) for spec, value in pairs])
    if specs.is_compatible_with(values):
        return specs
    return specs.most_specific_common_supertype([tf.type_spec_from_value(values)])


def with_batch_size(specs: Any, size: int) -> Any:
    """Fixes the open first dimension of dense specs.

    Example:

    >>> with_batch_size(tf.TensorSpec((None, 3), tf.float32), 2).shape
    TensorShape([2, 3])
    """

    def fix(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape[0] is None:
            return tf.TensorSpec([size, *spec.shape[1:]], spec.dtype)
        return spec

    return tf.nest.map_structure(fix, specs)


def with_fixed_shape(specs: Any, size: int) -> Any:
    """Fixes the batch size, and all other open dimensions, of dense specs.

    Example:

    >>> with_fixed_shape(tf.TensorSpec((None, None, 3), tf.float32), 2).shape
    TensorShape([2, 32, 3])
    """

    def fix(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
            return tf.TensorSpec(fixed_shape(spec.shape, size), spec.dtype)
        return spec

    return tf.nest.map_structure(fix, specs)


def with_float_dtype(specs: Any, dtype: str) -> Any:
    """Replaces the dtype of dense float specs.

    Example:

    >>> with_float_dtype(tf.TensorSpec((None,), tf.float32), "int32").dtype
    tf.int32
    """

    def replace(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and spec.dtype.is_floating:
            return tf.TensorSpec(spec.shape, dtype)
        return spec

    return tf.nest.map_structure(replace, specs)


def fixed_shape(shape: Any, size: int) -> list[int]:
    """Returns a shape with a batch size, and a size for every open dimension."""
    sizes = [None] if shape.rank is None else list(shape)
    return [
        (size if axis == 0 else UNKNOWN_DIMENSION) if length is None else length
        for axis, length in enumerate(sizes)
    ]
