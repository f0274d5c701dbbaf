"""The statistics of `keras.layers.Normalization`, which are cast before any call."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np

from tf_amp_kit._keras.patching import ClassPatch


def cast_statistics(layer: Any) -> None:
    """Makes a built Normalization cast anew what it subtracts and divides by.

    Keras casts them to the compute dtype of the moment, when the layer is built or
    adapted. All names are public.

    Args:
        layer: A `keras.layers.Normalization`.
    """
    if layer.input_mean is None:
        layer.finalize_state()
        return
    for name in ("mean", "variance"):
        given = np.asarray(getattr(layer, f"input_{name}"), "float32")
        shape = tuple(getattr(layer, name).shape)
        wide = given.reshape(shape) if given.size == math.prod(shape) else given
        cast = keras.ops.cast(np.broadcast_to(wide, shape), layer.compute_dtype)
        setattr(layer, name, cast)


def _make_call(original: Any) -> Any:
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        before = {name: vars(layer).get(name) for name in ("mean", "variance")}
        mean = before["mean"]
        if mean is None or mean.dtype.name == layer.compute_dtype:
            return original(layer, *args, **kwargs)
        try:
            cast_statistics(layer)
            return original(layer, *args, **kwargs)
        finally:
            vars(layer).update(before)  # past Keras's `__setattr__`

    return call


#: Casts the statistics for a call that computes in another dtype than they have.
statistics_patch = ClassPatch(keras.layers.Normalization, "call", _make_call)
