"""Lets keras-cv-attention-models, written for Keras 2, compose its graphs under Keras 3.

Keras 2 wrapped TensorFlow functions that were called on symbolic tensors into layers; Keras 3
refuses them. The package has a second set of functions for Keras 3 under its first name,
keras_core: it serves the symbolic calls, and calls inside layers stay with TensorFlow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import keras_cv_attention_models
import tensorflow as tf

__all__ = ["install"]

PACKAGE = keras_cv_attention_models.__name__
POSITION_BIASES = (
    keras_cv_attention_models.beit.MultiHeadRelativePositionalEmbedding,
    keras_cv_attention_models.levit.MultiHeadPositionalEmbedding,
    keras_cv_attention_models.nat.MultiHeadRelativePositionalKernelBias,
    keras_cv_attention_models.swin_transformer_v2.MlpPairwisePositionalEmbedding,
)


def _is_symbolic(arguments: Any) -> bool:
    return any(isinstance(leaf, keras.KerasTensor) for leaf in tf.nest.flatten(arguments))


def _value(argument: Any) -> Any:
    if isinstance(argument, keras.Variable):
        return keras.ops.convert_to_tensor(argument)
    return argument


class _Functional:
    """The package's functions: of Keras for symbolic tensors, of TensorFlow for all others."""

    def __init__(self, for_values: Any, for_symbols: Any) -> None:
        self._for_values = for_values
        self._for_symbols = for_symbols

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _is_symbolic((args, kwargs)):
                args, kwargs = tf.nest.map_structure(_value, (args, kwargs))
                return getattr(self._for_values, name)(*args, **kwargs)
            if hasattr(self._for_symbols, name):
                kwargs.pop("name", None)
                return getattr(self._for_symbols, name)(*args, **kwargs)
            return getattr(keras.ops, name)(*args, **kwargs)

        return call


def _same_shape(_layer: keras.layers.Layer, input_shape: Any) -> Any:
    return input_shape


def install() -> None:
    """Replace the module `functional` wherever the package refers to it."""
    sys.modules.setdefault("keras_core", keras)
    sys.modules.setdefault("keras_core.ops", keras.ops)
    from keras_cv_attention_models import keras_core_functional, tf_functional

    functional = _Functional(tf_functional, keras_core_functional)
    for name, module in list(sys.modules.items()):
        if name.startswith(PACKAGE) and getattr(module, "functional", None) is tf_functional:
            module.functional = functional
    # Keras marks a symbolic tensor times a number as sparse, and would infer the shapes of
    # these layers by calling them with a sparse tensor.
    for layer_class in POSITION_BIASES:
        layer_class.compute_output_shape = _same_shape
