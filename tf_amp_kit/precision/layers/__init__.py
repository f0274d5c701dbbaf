"""Layers that stay in float32, whatever precision the model around them has.

`Float32` wraps any layer. The others have the names and arguments of Keras's
layers and functions: those that Keras has as layers are made by functions that
return Keras's own classes, with `dtype="float32"`, so that files open in plain
Keras; only `LogSoftmax` and the reductions are classes of this package. All of
them take half inputs and return float32.

Example:

>>> import keras
>>> import tf_amp_kit as amp
>>> with amp.amp_scope("fp16"):
...     model = keras.Sequential(
...         [keras.Input((4,)), keras.layers.Dense(8, name="dense"), amp.layers.Softmax()]
...     )
>>> [(layer.name, layer.compute_dtype) for layer in model.layers]
[('dense', 'float16'), ('softmax', 'float32')]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras

from tf_amp_kit.precision.layers.float32 import Float32
from tf_amp_kit.precision.layers.reductions import (
    CumSum,
    LogSoftmax,
    LogSumExp,
    Mean,
    Norm,
    Sum,
    Variance,
)
from tf_amp_kit.precision.layers.twins import ABSENT, FUNCTIONS

__all__ = [
    "CumSum",
    "Float32",
    "LogSoftmax",
    "LogSumExp",
    "Mean",
    "Norm",
    "Sum",
    "Variance",
    *FUNCTIONS,
]

_Makes = Callable[..., keras.layers.Layer]

Softmax: _Makes
Sigmoid: _Makes
Activation: _Makes
UnitNormalization: _Makes
Normalization: _Makes
BatchNormalization: _Makes
RMSNormalization: _Makes
LayerNormalization: _Makes
GroupNormalization: _Makes
SpectralNormalization: _Makes
AveragePooling1D: _Makes
AveragePooling2D: _Makes
AveragePooling3D: _Makes
GlobalAveragePooling1D: _Makes
GlobalAveragePooling2D: _Makes
GlobalAveragePooling3D: _Makes
Attention: _Makes
AdditiveAttention: _Makes
MultiHeadAttention: _Makes
Lambda: _Makes

globals().update(FUNCTIONS)

# A type checker would take each misspelled name for one that this knows.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ABSENT:
            raise AttributeError(
                f"Keras {keras.__version__} has no layer {(ABSENT[name].keras_name or name)!r}: "
                f"tf_amp_kit.layers.{name} needs a newer one."
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
