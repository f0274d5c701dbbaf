"""Private names of TensorFlow about kernels, and about oneDNN."""

from __future__ import annotations

import importlib
from functools import cache

import tensorflow as tf


@cache
def registered_kernels(op_type: str) -> tuple[tuple[str, dict[str, tuple[str, ...]]], ...]:
    """Lists the kernels of an operation in this build of TensorFlow.

    Uses `tensorflow.python.framework.kernels`: there is no public list.

    Args:
        op_type: The operation's type, `"MaxPool3D"` for example.

    Returns:
        Pairs of a device type and the allowed dtype names of each attribute.
    """
    from tensorflow.python.framework import kernels

    return tuple(
        (
            kernel.device_type,
            {
                constraint.name: tuple(
                    tf.as_dtype(number).name for number in constraint.allowed_values.list.type
                )
                for constraint in kernel.constraint
            },
        )
        for kernel in kernels.get_registered_kernels_for_op(op_type).kernel
    )


def onednn_accepts(dtype: str) -> bool | None:
    """Tells whether oneDNN takes a dtype on this CPU, as TensorFlow asks it.

    Uses `tensorflow.python.util._pywrap_utils.IsDataTypeSupportedByOneDNNOnThisCPU`.
    TensorFlow decides with it whether an operation goes to oneDNN, and offers no
    public way to ask. It is no answer about speed: for bfloat16 any CPU with
    AVX-512 gets True, also one on which oneDNN has to emulate it. On ARM it
    asks for x86 instructions, and so means nothing.

    Args:
        dtype: A dtype's name, `"bfloat16"` for example.

    Returns:
        True or False, or None where this TensorFlow does not have the function.

    Example:

    >>> onednn_accepts("float32") in (True, False, None)
    True
    """
    try:
        module = importlib.import_module("tensorflow.python.util._pywrap_utils")
        return bool(module.IsDataTypeSupportedByOneDNNOnThisCPU(tf.as_dtype(dtype)))
    except (ImportError, AttributeError, TypeError):
        return None


def onednn_is_enabled() -> bool | None:
    """Tells whether TensorFlow was built with oneDNN, and has it switched on.

    Uses `tensorflow.python.util._pywrap_util_port.IsMklEnabled`. The public
    `tf.sysconfig.get_build_info()` does not name oneDNN, and the environment
    variable `TF_ENABLE_ONEDNN_OPTS` alone does not show the build's default.

    Returns:
        True or False, or None where this TensorFlow does not have the function.

    Example:

    >>> onednn_is_enabled() in (True, False, None)
    True
    """
    try:
        module = importlib.import_module("tensorflow.python.util._pywrap_util_port")
        return bool(module.IsMklEnabled())
    except (ImportError, AttributeError, TypeError):
        return None
