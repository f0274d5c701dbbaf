"""Keras's own layers, made float32: one table, and the functions made from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import keras

from tf_amp_kit.errors import LayerError
from tf_amp_kit.precision.layer_policies import set_float32
from tf_amp_kit.precision.results import FLOAT32

__all__ = ["ABSENT", "FUNCTIONS", "TWINS", "Twin"]


@dataclass(frozen=True)
class Twin:
    """A layer of Keras that is worth keeping in float32.

    Attributes:
        name: What the function is called.
        reason: What half precision does to the layer, in a sentence.
        example: Arguments with which it can be made, as they are written.
        keras_name: The class in `keras.layers`, where it has another name.
        fixed: The first arguments of that class, where the twin decides them.
    """

    name: str
    reason: str
    example: str = ""
    keras_name: str = ""
    fixed: tuple[str, ...] = ()

    @property
    def keras_class(self) -> Any:
        """The class of Keras, or None where the installed Keras has none."""
        return getattr(keras.layers, self.keras_name or self.name, None)


_INSIDE: Final = (
    "Keras computes it in float32 and casts the result down: "
    "what the twin saves is the rounding of that result."
)
_INSIDE_UNCAST: Final = (
    f"{_INSIDE} Keras keeps that in no file: after loading, a float32 result "
    "of half inputs is rounded to their dtype once."
)
_POOLING: Final = (
    "The mean is a sum first, which overflows in float16, and some devices have no half kernel."
)
_HEAD: Final = (
    "As the last layer in half, its gradient is exactly zero for samples that are "
    "confidently wrong: probabilities next to 0 and 1 are rounded to them."
)
_SCORES: Final = (
    "Scores are sums over features and times, which overflow in float16; a row that is "
    "masked as a whole becomes NaN."
)

_TABLE: Final = (
    Twin("Softmax", _HEAD),
    Twin("Sigmoid", _HEAD, keras_name="Activation", fixed=("sigmoid",)),
    Twin("Activation", _HEAD, example='"softplus"'),
    Twin("UnitNormalization", "Squares overflow float16 above 255 and vanish below 2e-4."),
    Twin(
        "Normalization",
        "Inputs above 65504 become infinite and years become equal before they are normalized.",
        example="mean=2000.0, variance=100.0",
    ),
    Twin("BatchNormalization", _INSIDE),
    Twin("RMSNormalization", f"{_INSIDE} Keras 3.10 squares in half, which overflows above 255."),
    Twin("LayerNormalization", _INSIDE_UNCAST),
    Twin("GroupNormalization", _INSIDE_UNCAST, example="groups=2"),
    Twin(
        "SpectralNormalization",
        "The power iteration sums squares of weights. The wrapped layer is made float32 too.",
        example="keras.layers.Dense(2)",
    ),
    Twin("AveragePooling1D", _POOLING, example="pool_size=2"),
    Twin("AveragePooling2D", _POOLING, example="pool_size=2"),
    Twin("AveragePooling3D", _POOLING, example="pool_size=2"),
    Twin("GlobalAveragePooling1D", _INSIDE),
    Twin("GlobalAveragePooling2D", _INSIDE),
    Twin("GlobalAveragePooling3D", _INSIDE),
    Twin("Attention", _SCORES),
    Twin("AdditiveAttention", _SCORES),
    Twin(
        "MultiHeadAttention",
        "Scores overflow in float16 before Keras's float32 softmax sees them. The layer is "
        "float32 as a whole: a policy of its softmax alone is in no file of plain Keras.",
        example="num_heads=2, key_dim=4",
    ),
    Twin(
        "Lambda",
        "Nothing is known of your function: it gets float32, and constants do not widen it.",
        example="keras.ops.exp",
    ),
)

TWINS: Final = {twin.name: twin for twin in _TABLE if twin.keras_class is not None}

#: What the installed Keras is too old for.
ABSENT: Final = {twin.name: twin for twin in _TABLE if twin.keras_class is None}

_DOCSTRING: Final = """Makes Keras's `{cls}` compute in float32 and return float32.

{reason}

Use it like `keras.layers.{cls}`, whose class it returns: files open in plain
Keras. For results that come back to half, and inside `TimeDistributed`, which
calls a layer past the casts of its inputs, wrap the Keras layer in `Float32`.

Args:
    *args: The arguments of `keras.layers.{cls}`{but}.
    **kwargs: The same by name, except for `dtype`.

Returns:
    A `keras.layers.{cls}` with `dtype="float32"`.

Raises:
    LayerError: If a dtype is passed.

Example:

>>> import tf_amp_kit as amp
>>> with amp.amp_scope("fp16"):
...     layer = amp.layers.{name}({example})
>>> layer.compute_dtype
'float32'
"""


def _function(twin: Twin) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        if "dtype" in kwargs:
            raise LayerError(
                f"{twin.name} is here to be float32. Expected no dtype. "
                f"Received: dtype={kwargs['dtype']!r}. For another one use "
                f"keras.layers.{twin.keras_class.__name__}; for results in half, Float32."
            )
        layer = twin.keras_class(*twin.fixed, *args, dtype=FLOAT32, **kwargs)
        set_float32(layer)  # what it wraps keeps a policy of its own
        layer.autocast = True  # some opt out, and round results to the dtype of their inputs
        return layer

    name = twin.keras_class.__name__
    make.__name__ = make.__qualname__ = twin.name
    but = f", after {', '.join(map(repr, twin.fixed))}" if twin.fixed else ""
    make.__doc__ = _DOCSTRING.format(
        cls=name, name=twin.name, reason=twin.reason, example=twin.example, but=but
    )
    signature = inspect.signature(twin.keras_class)
    parameters = [p for p in signature.parameters.values() if p.name != "dtype"]
    vars(make)["__signature__"] = signature.replace(parameters=parameters[len(twin.fixed) :])
    return make


FUNCTIONS: Final = {name: _function(twin) for name, twin in TWINS.items()}
