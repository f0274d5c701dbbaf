"""What the tests of conversion compare."""

from __future__ import annotations

import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.tracing.paths import LayerPaths


def bits(structure: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Dtype, shape and bytes of all arrays and variables in a structure."""
    arrays = [np.asarray(one) for one in tf.nest.flatten(structure)]
    return [(str(one.dtype), one.shape, one.tobytes()) for one in arrays]


def optimizer_bits(optimizer: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    """The state of an optimizer, without that of a wrapper around it."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return bits([variable.numpy() for variable in inner.variables])


def seeds(model: keras.Model) -> list[list[int]]:
    """The states of the seed generators in a model, in the order of its variables."""
    return [one.numpy().tolist() for one in model.variables if one.name == "seed_generator_state"]


def policies(model: keras.Model) -> dict[str, str]:
    return {path: layer.dtype_policy.name for path, layer in LayerPaths(model)}


def compute_dtypes(model: keras.Model) -> dict[str, str]:
    return {path: layer.compute_dtype for path, layer in LayerPaths(model)}


def prediction(model: keras.Model, inputs: Any) -> Any:
    """What a model gives, without a graph: `predict` traces each model anew."""
    with warnings.catch_warnings():
        # Keras 3.10 makes a list of a single input, in all that it makes from a config.
        warnings.filterwarnings("ignore", message="(?s).*The structure of `inputs`")
        return model(inputs, training=False)
