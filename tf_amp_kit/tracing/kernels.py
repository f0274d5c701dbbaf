"""Which operations this build of TensorFlow cannot run in half precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_half

__all__ = ["default_device_type", "has_kernel", "missing_half_kernel"]


def default_device_type() -> str:
    """Returns `"GPU"` where TensorFlow places operations on one by default, else `"CPU"`."""
    return "GPU" if tf.config.list_physical_devices("GPU") else "CPU"


def missing_half_kernel(
    op_type: str, attribute: Callable[[str], Any], device_type: str
) -> str | None:
    """Finds the half-precision dtype that an operation has no kernel for.

    Args:
        op_type: The operation type.
        attribute: Takes the name of an attribute, and returns it or None.
        device_type: `"CPU"` or `"GPU"`.

    Returns:
        The dtype's name, or None if the operation runs.
    """
    for name, dtype in _half_attributes(op_type, attribute):
        if not has_kernel(op_type, name, dtype, device_type):
            return dtype
    return None


@cache
def has_kernel(op_type: str, attribute: str, dtype: str, device_type: str) -> bool:
    """Tells whether a kernel is registered for one dtype of an operation.

    Args:
        op_type: The operation type.
        attribute: The name of its dtype attribute, `"T"` mostly.
        dtype: The dtype.
        device_type: `"CPU"` or `"GPU"`.
    """
    kernels = _keras.registered_kernels(op_type)
    here = [constraints for device, constraints in kernels if device in (device_type, "DEFAULT")]
    if not here:
        # Nothing registered for the device: rewritten, or placed elsewhere.
        return True
    return any(
        attribute not in constraints or dtype in constraints[attribute] for constraints in here
    )


def _half_attributes(op_type: str, attribute: Callable[[str], Any]) -> Iterator[tuple[str, str]]:
    for name in _constrained(op_type):
        dtype = getattr(attribute(name), "name", "")
        if is_half(dtype):
            yield name, dtype


@cache
def _constrained(op_type: str) -> tuple[str, ...]:
    """Returns the names of the attributes that kernels of an operation differ in."""
    kernels = _keras.registered_kernels(op_type)
    return tuple(sorted({name for _, constraints in kernels for name in constraints}))
