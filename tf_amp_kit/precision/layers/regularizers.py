"""Activity regularizers of layers whose results come back to half."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit.precision.layers.casting import cast_floats
from tf_amp_kit.precision.results import FLOAT32

__all__ = ["WideRegularizer", "with_wide_regularizer"]


@keras.saving.register_keras_serializable("tf_amp_kit")
class WideRegularizer(keras.regularizers.Regularizer):
    """Computes a regularizer in float32: `fit` takes no losses in half.

    Keras applies a layer's `activity_regularizer` to the results as they come
    back. The layers of this package put this around theirs.

    Args:
        regularizer: A regularizer, or what `keras.regularizers.get` takes.

    Example:

    >>> x = keras.ops.array([300, 400], "float16")
    >>> float(WideRegularizer(keras.regularizers.L2(0.5))(x))
    125000.0
    """

    def __init__(self, regularizer: Any) -> None:
        self.regularizer = keras.regularizers.get(regularizer)

    def __call__(self, x: Any) -> Any:
        """Returns the loss, in float32."""
        return self.regularizer(cast_floats(x, FLOAT32))

    def get_config(self) -> dict[str, Any]:
        """Returns the argument, as Keras's files keep it."""
        return {"regularizer": keras.regularizers.serialize(self.regularizer)}


def with_wide_regularizer(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a layer with an `activity_regularizer` in float32.

    Example:

    >>> with_wide_regularizer({"name": "x"})
    {'name': 'x'}
    """
    given = keras.regularizers.get(kwargs.get("activity_regularizer"))
    if given is None or isinstance(given, WideRegularizer):
        return kwargs
    return {**kwargs, "activity_regularizer": WideRegularizer(given)}
