"""A layer of each kind that has a twin, with inputs chosen to break it in half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

Arrays = tuple[np.ndarray, ...]

HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Case:
    """One layer and what it is tried on.

    Attributes:
        twin: The twin's name.
        inputs: Float32 arrays, before they are rounded to the half format.
        args: The arguments of twin and Keras layer.
        keras_class: The Keras class, if it is not of the twin's name.
        call: Calls the layer.
        breaks_in: Where the layer itself gives wrong results or gradients.
        loss: From the outputs, in float32; None for a sum with fixed factors.
        takes_float32: Whether inputs come as float32, as from an Input.
    """

    twin: str
    inputs: Arrays
    args: tuple[Any, ...] = ()
    keras_class: Callable[..., Any] | None = None
    call: Callable[..., Any] = field(default=lambda layer, *inputs: layer(*inputs))
    breaks_in: tuple[str, ...] = ()
    loss: Callable[[Any], Any] | None = None
    takes_float32: bool = False

    def keras_layer(self, **kwargs: Any) -> Any:
        args = [arg() if arg is dense else arg for arg in self.args]
        return (self.keras_class or getattr(keras.layers, self.twin))(*args, **kwargs)

    def twin_layer(self, layers: Any) -> Any:
        args = [arg() if arg is dense else arg for arg in self.args]
        return getattr(layers, self.twin)(*args)


def wide_range(*shape: int) -> np.ndarray:
    """Magnitudes from 1e-6 to 6e4, each sign, evenly in the logarithm."""
    rng = np.random.default_rng(7)
    values = 10 ** rng.uniform(-6, np.log10(6e4), shape) * rng.choice([-1, 1], shape)
    return values.astype("float32")


def normal(*shape: int, seed: int = 3, factor: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=shape) * factor).astype("float32")


def long_window(*shape: int) -> np.ndarray:
    """Values around 300, whose sum over thousands leaves float16."""
    return (300 + normal(*shape)).astype("float32")


def confidently_wrong(outputs: Any) -> Any:
    """Cross-entropy where class 0 is right."""
    return -keras.ops.sum(keras.ops.log(keras.ops.clip(outputs[:, 0], 1e-30, 1.0)))


def training(layer: Any, *inputs: Any) -> Any:
    return layer(*inputs, training=True)


def with_masked_rows(layer: Any, query: Any, value: Any) -> Any:
    """The second sample has nothing to attend to."""
    seen = np.array([[True] * value.shape[1], [False] * value.shape[1]])
    mask = [None, keras.ops.convert_to_tensor(seen)]
    # Keras 3.10 takes a mask of this shape only together with a causal one.
    return layer([query, value], mask=mask, use_causal_mask=True)


def with_masked_attention(layer: Any, query: Any, value: Any) -> Any:
    seen = np.ones((query.shape[0], query.shape[1], value.shape[1]), bool)
    seen[1] = False
    return layer(query, value, attention_mask=keras.ops.convert_to_tensor(seen))


def log_of_exp(inputs: Any) -> Any:
    return keras.ops.log(1 + keras.ops.exp(inputs))


def dense() -> Any:
    return keras.layers.Dense(3, kernel_initializer="ones")


CASES = [
    Case(
        "Softmax",
        (np.array([[0, 20], [-20, 0], [5e4, -5e4], [7, 7]], "float32"),),
        breaks_in=("float16",),
        loss=confidently_wrong,
    ),
    Case(
        "Sigmoid",
        (np.array([[-12], [12], [-1e-6], [6e4]], "float32"),),
        keras_class=lambda **kwargs: keras.layers.Activation("sigmoid", **kwargs),
        breaks_in=HALVES,
        loss=lambda p: -keras.ops.sum(keras.ops.log(keras.ops.clip(1 - p, 1e-7, 1.0))),
    ),
    Case(
        "Activation",
        (np.array([[-25, -20, -17]], "float32"),),
        ("softplus",),
        breaks_in=("float16",),
    ),
    Case("UnitNormalization", (wide_range(4, 8),), breaks_in=("float16",)),
    Case(
        "Normalization",
        (np.array([[2010], [2011], [2012]], "float32"),),
        (-1, 2000.0, 100.0),
        breaks_in=("bfloat16",),
        takes_float32=True,
    ),
    Case(
        "Normalization",
        (np.array([[1e5], [2e5]], "float32"),),
        (-1, 1e5, 1e10),
        breaks_in=("float16",),
        takes_float32=True,
    ),
    Case("BatchNormalization", (wide_range(8, 4),), call=training),
    Case("RMSNormalization", (wide_range(4, 8),)),
    Case("LayerNormalization", (np.concatenate([wide_range(3, 8), np.ones((1, 8))]),)),
    Case("GroupNormalization", (wide_range(3, 5, 8),), (2,)),
    Case("SpectralNormalization", (normal(4, 6),), (dense,), call=training),
    Case("AveragePooling1D", (long_window(2, 4096, 3),), (4096,), breaks_in=("float16",)),
    Case("AveragePooling2D", (long_window(2, 64, 64, 3),), (64,), breaks_in=("float16",)),
    Case("AveragePooling3D", (long_window(1, 16, 16, 16, 2),), (16,), breaks_in=("float16",)),
    Case("GlobalAveragePooling1D", (long_window(2, 4096, 3),)),
    Case("GlobalAveragePooling2D", (long_window(2, 64, 64, 3),)),
    Case("GlobalAveragePooling3D", (long_window(1, 16, 16, 16, 2),)),
    Case(
        "Attention",
        (normal(2, 5, 64, factor=100), normal(2, 6, 64, seed=4, factor=100)),
        call=with_masked_rows,
        breaks_in=HALVES,
    ),
    Case(
        "AdditiveAttention",
        (normal(2, 5, 64), normal(2, 6, 64, seed=4)),
        call=with_masked_rows,
    ),
    Case(
        "MultiHeadAttention",
        (normal(2, 5, 16, factor=3000), normal(2, 6, 16, seed=4, factor=3000)),
        (2, 8),
        call=with_masked_attention,
        breaks_in=("float16",),
    ),
    Case(
        "Lambda",
        (np.linspace(-12, 12, 24, dtype="float32"),),
        (log_of_exp,),
        breaks_in=("float16",),
    ),
]
