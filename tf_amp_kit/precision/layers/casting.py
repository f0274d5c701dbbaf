"""Casting the floats of nested structures, masks kept."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_float, is_half

__all__ = ["cast_floats", "dtype_name"]


def cast_floats(structure: Any, dtype: str, *, only_half: bool = False) -> Any:
    """Casts the float tensors of a nested structure, masks kept; the rest stays.

    Args:
        structure: Tensors, symbolic ones too, and anything else, nested.
        dtype: The dtype to cast to.
        only_half: Leaves float32 and float64 tensors as they are.

    Returns:
        The same structure.

    Example:

    >>> half = keras.ops.ones((2,), "float16")
    >>> cast_floats({"x": half, "axis": 1}, "float32")["x"].dtype.name
    'float32'
    """
    is_meant = is_half if only_half else is_float

    def cast(value: Any) -> Any:
        found = dtype_name(value)
        return _keras.cast_with_mask(value, dtype) if is_meant(found) and found != dtype else value

    return keras.tree.map_structure(cast, structure)


def dtype_name(value: Any) -> str:
    """Returns the dtype of a tensor, and an empty string for what is none.

    Example:

    >>> dtype_name(keras.ops.ones((2,), "bfloat16")), dtype_name(1.5)
    ('bfloat16', '')
    """
    if isinstance(value, keras.KerasTensor) or keras.ops.is_tensor(value):
        return str(getattr(value.dtype, "name", value.dtype))
    return ""
