"""Giving a layer, and all that is in it, the float32 policy."""

from __future__ import annotations

from typing import Any

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.formats import is_half, width
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["half_variables", "set_float32"]


def half_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer and its sublayers store in half precision.

    Args:
        layer: A layer. What is not built yet has no variables.

    Returns:
        Keras variables, each once.

    Example:

    >>> import keras
    >>> dense = keras.layers.Dense(2, dtype="float16")
    >>> dense.build((None, 3))
    >>> [variable.name for variable in half_variables(dense)]
    ['kernel', 'bias']
    """
    variables = {id(v): v for _, sub in LayerPaths(layer) for v in sub.variables}
    return [v for v in variables.values() if is_half(_keras.stored_dtype(v))]


def set_float32(layer: Any) -> None:
    """Makes a layer and all its sublayers compute in float32, from their next call on.

    Sublayers are reached that no policy of the layer itself would reach, the
    softmax of MultiHeadAttention for one. What computes in float64 or in no
    float at all stays as it is.

    Args:
        layer: A layer, built or not; changed in place.

    Raises:
        LayerError: If variables are stored in half precision.

    Example:

    >>> import keras
    >>> dense = keras.layers.Dense(2, dtype="mixed_float16")
    >>> set_float32(dense)
    >>> dense.dtype_policy.name
    'float32'
    """
    halves = half_variables(layer)
    if halves:
        raise LayerError(
            "A layer that stores its variables in half precision cannot compute with float32 "
            f"ones. Expected variables in float32. Received: layer={layer.name!r} with "
            f"{len(halves)} in half, {halves[0].path!r} first. Build it with dtype='float32' "
            "or a mixed policy, whose variables are float32."
        )
    for _, sub in LayerPaths(layer):
        # Float32 ones too: setting it tells a wrapper what its results come back to.
        if 0 < width(sub.compute_dtype) <= width("float32"):
            # Quantized layers keep their mode: int8_from_mixed_bfloat16.
            *mode, _ = sub.dtype_policy.name.rpartition("_from_")
            sub.dtype_policy = "".join((*mode, "float32"))
        if _keras.is_functional(sub) and sub.built:
            _keras.take_float32_inputs(sub)
