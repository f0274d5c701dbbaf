"""Layers that return float32, or compute in it, inside a half model."""

from __future__ import annotations

import functools

import keras
from keras import layers

from . import faults, places
from .expect import Case, Expected

_ARRAY_OPS = (faults.Multiply, faults.Add, faults.Divide, faults.Maximum, faults.Where)
_MATRIX_OPS = (faults.Matmul, faults.Einsum, faults.Tensordot)
_VECTORS = {
    "a float32 array": faults.float32_array,
    "a float32 tensor": faults.float32_tensor,
    "a float64 array": faults.float64_array,
}
_MATRICES = {
    "a float32 array": faults.square_array,
    "a float32 tensor": faults.square_tensor,
    "a float64 array": faults.square_float64,
}
_PLAIN = (
    faults.HiddenCast,
    faults.HiddenOpsCast,
    faults.HiddenSpec,
    faults.OpenCast,
    faults.DoubleCast,
    faults.WideWeight,
    faults.WideKernel,
    faults.NoAutocast,
    faults.VariableDtype,
    faults.PositionCodes,
    faults.FloatMask,
    faults.WideNoise,
    faults.TrainingOnly,
    faults.InGraphFunction,
    faults.InBranch,
)
_MATMUL_INSIDE = (*_MATRIX_OPS, faults.WideKernel)
_DOUBLE = (faults.DoubleCast,)


def _case(name: str, place: places.Place, layer: type, make=None, double=False) -> Case:
    make = make or layer
    code = "AMP102" if double or layer in _DOUBLE else "AMP101"
    # A wide product whose result stays wide is one mistake; a report may add its cost.
    tolerated = frozenset({"AMP103"}) if layer in _MATMUL_INSIDE else frozenset()
    return Case(
        name,
        lambda half: place.build(make),
        (Expected(code, place.path, place.below, planted=layer),),
        tolerated=tolerated,
    )


def _constant_cases() -> list[Case]:
    place = places.PLACES["in a functional model"]
    kinds = [(op, name, make) for op in _ARRAY_OPS for name, make in _VECTORS.items()]
    kinds += [(op, name, make) for op in _MATRIX_OPS for name, make in _MATRICES.items()]
    kinds += [(faults.Concatenate, name, make) for name, make in _VECTORS.items()]
    kinds += [(op, "a float32 scalar", faults.float32_scalar) for op in _ARRAY_OPS]
    return [
        _case(
            f"{op.__name__.lower()} with {name}",
            place,
            op,
            functools.partial(op, make),
            double="float64" in name,
        )
        for op, name, make in kinds
    ]


def _place_cases() -> list[Case]:
    kinds = (faults.Multiply, faults.HiddenCast, faults.WideWeight)
    return [
        _case(f"{layer.__name__} {name}", place, layer)
        for name, place in places.PLACES.items()
        for layer in kinds
    ]


def _image_model(layer: type) -> keras.Model:
    inputs = keras.Input((6, 6, 3))
    hidden = layers.Conv2D(faults.WIDTH, 3, padding="same")(inputs)
    hidden = layers.Conv2D(4, 1)(layer(name="fault")(hidden))
    return keras.Model(inputs, places.head()(layers.GlobalAveragePooling2D()(hidden)))


def _two_outputs(half: str) -> keras.Model:
    inputs = keras.Input((faults.WIDTH,))
    both = faults.TwoOutputs(name="fault")(layers.Dense(faults.WIDTH)(inputs))
    hidden = layers.Concatenate()([both["kept"], layers.Dense(4)(both["wide"])])
    return keras.Model(inputs, places.head()(hidden))


def _two_mistakes(half: str) -> keras.Model:
    inputs = keras.Input((faults.WIDTH,))
    hidden = faults.Multiply(name="one")(layers.Dense(faults.WIDTH)(inputs))
    hidden = faults.WideWeight(name="two")(layers.Dense(faults.WIDTH)(hidden))
    return keras.Model(inputs, places.head()(hidden))


class PassesOn(layers.Layer):
    """Takes whatever dtype it gets and does nothing wide of its own."""

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def call(self, inputs):
        return inputs[:, ::-1]


def _passed_on(half: str) -> keras.Model:
    inputs = keras.Input((faults.WIDTH,))
    hidden = faults.Multiply(name="fault")(layers.Dense(faults.WIDTH)(inputs))
    hidden = PassesOn(name="second")(PassesOn(name="first")(hidden))
    return keras.Model(inputs, places.head()(hidden))


def _own_line(name: str, half_model, layer: type, path: str = "fault") -> Case:
    return Case(name, half_model, (Expected("AMP101", path, planted=layer),))


REVERTING = [
    *_constant_cases(),
    *[_case(layer.__name__, places.PLACES["in a sequential model"], layer) for layer in _PLAIN],
    *_place_cases(),
    _own_line("resize of images", lambda half: _image_model(faults.Resize), faults.Resize),
    _own_line("one of two outputs", _two_outputs, faults.TwoOutputs),
    _own_line("passed on by the layers after it", _passed_on, faults.Multiply),
    Case(
        "a helper function widens",
        lambda half: places.in_functional(faults.InHelper),
        (Expected("AMP101", "fault", planted=faults.helper_widen),),
    ),
    Case(
        "two mistakes are two findings",
        _two_mistakes,
        (
            Expected("AMP101", "one", planted=faults.Multiply),
            Expected("AMP101", "two", planted=faults.WideWeight),
        ),
    ),
    Case(
        "reverts in training, audited at inference",
        lambda half: places.in_functional(faults.TrainingOnly),
        audit={"training": False},
    ),
    Case(
        "reverts in training, audited in training",
        lambda half: places.in_functional(faults.TrainingOnly),
        (Expected("AMP101", "fault", planted=faults.TrainingOnly),),
        audit={"training": True},
    ),
    Case(
        "built by the audit",
        lambda half: places.in_functional(faults.HiddenCast),
        (Expected("AMP101", "fault", planted=faults.HiddenCast),),
        as_builder=True,
    ),
]


# Half at both ends, float32 inside. A product that a composite of Keras runs wide may
# be told at the composite or at the part, once or once per direction.


def _sequence_model(make) -> keras.Model:
    inputs = keras.Input((5, faults.WIDTH))
    hidden = make()(layers.Dense(faults.WIDTH)(inputs))
    return keras.Model(inputs, places.head()(layers.Flatten()(hidden)))


def _wide(name: str, make, tolerated=frozenset()) -> Case:
    return Case(
        name,
        lambda half: _sequence_model(functools.partial(make, f"mixed_{half}")),
        (Expected("AMP103", "fault", below=True, most=2),),
        tolerated=tolerated,
    )


def _inside(layer: type, place: str = "in a functional model") -> Case:
    at = places.PLACES[place]
    return Case(
        f"{layer.__name__} {place}",
        lambda half: at.build(layer),
        (Expected("AMP103", at.path, at.below, planted=layer, says=("%|multiply-add",)),),
    )


WIDE_INSIDE = [
    _wide(
        "bidirectional over a float32 LSTM",
        lambda mixed: layers.Bidirectional(
            layers.LSTM(4, dtype="float32"), dtype=mixed, name="fault"
        ),
    ),
    _wide(
        "bidirectional over a float32 GRU",
        lambda mixed: layers.Bidirectional(
            layers.GRU(4, dtype="float32"), dtype=mixed, name="fault"
        ),
    ),
    _wide(
        "RNN over a float32 LSTM cell",
        lambda mixed: layers.RNN(layers.LSTMCell(4, dtype="float32"), dtype=mixed, name="fault"),
    ),
    _wide(
        "RNN over a float32 simple cell",
        lambda mixed: layers.RNN(
            layers.SimpleRNNCell(4, dtype="float32"), dtype=mixed, name="fault"
        ),
    ),
    _wide(
        "spectral normalization of a float32 dense",
        lambda mixed: layers.SpectralNormalization(
            layers.Dense(4, dtype="float32"), dtype=mixed, name="fault"
        ),
        tolerated=frozenset({"AMP204"}),  # its bound of 1 / norm overflows float16 as well
    ),
    *[
        _inside(layer)
        for layer in (
            faults.CastUpMatmul,
            faults.CastUpEinsum,
            faults.WideKernelCastBack,
            faults.CastUpInGraphFunction,
            faults.CastUpInLoop,
        )
    ],
    *[
        _inside(faults.CastUpMatmul, place)
        for place in (
            "in a nested sequential",
            "in a list of a subclassed model",
            "inside another layer",
            "in a time-distributed wrapper",
            "in a while loop",
            "shared by two branches",
            "in a model of dicts",
            "as the last layer",
        )
    ],
    Case(
        "CastUpConv on images",
        lambda half: _image_model(faults.CastUpConv),
        (Expected("AMP103", "fault", planted=faults.CastUpConv),),
    ),
    Case(
        "a float32 sublayer between half casts",
        lambda half: places.in_functional(faults.WideSublayer),
        (Expected("AMP103", "fault", below=True, planted=faults.WideSublayer),),
    ),
]
