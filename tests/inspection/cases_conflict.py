"""Dtypes that conflict, kernels that do not exist: found, not crashed on."""

from __future__ import annotations

import functools

import keras
import numpy as np
from keras import layers

from . import conflicts, faults, places
from .expect import Case, Expected


class Late(keras.Model):
    """Calls its layer for the first time when somebody calls the model."""

    def __init__(self, make):
        super().__init__()
        self.first = layers.Dense(faults.WIDTH)
        self.steps = [make()]
        self.head = places.head()

    def build(self, input_shape):
        self.first.build(input_shape)
        self.head.build(self.first.compute_output_shape(input_shape))

    def call(self, inputs):
        return self.head(self.steps[0](self.first(inputs)))


_INPUTS = {"inputs": np.zeros((2, faults.WIDTH), "float32")}


def _conflict(layer: type, path: str, says=("float32",)) -> tuple[Expected, ...]:
    return (Expected("AMP107", path, planted=layer, says=says),)


def _in_builder(layer: type) -> Case:
    # The transform refuses half without a second dtype that is in the model.
    says = () if layer is conflicts.Fourier else ("float32",)
    return Case(
        f"{layer.__name__} while building",
        lambda half: places.in_functional(layer),
        _conflict(layer, "fault", says),
        as_builder=True,
    )


def _when_called(layer: type) -> Case:
    says = () if layer is conflicts.Fourier else ("float32",)
    return Case(
        f"{layer.__name__} in a subclassed model",
        lambda half: Late(layer),
        _conflict(layer, "steps/0", says),
        audit=_INPUTS,
    )


def _at(place: str) -> Case:
    at = places.PLACES[place]
    return Case(
        f"TimesTensor {place}, while building",
        lambda half: at.build(conflicts.TimesTensor),
        (Expected("AMP107", at.path, at.below, planted=conflicts.TimesTensor, says=("float32",)),),
        as_builder=True,
    )


def _lambda_conflict(half: str) -> keras.Model:
    inputs = keras.Input((faults.WIDTH,))
    hidden = layers.Dense(faults.WIDTH)(inputs)
    hidden = layers.Lambda(lambda x: x * conflicts.tensor(), name="fault")(hidden)  # PLANTED
    return keras.Model(inputs, places.head()(hidden))


def _untyped_sequential(half: str) -> keras.Model:
    return keras.Sequential(
        [layers.Dense(faults.WIDTH), conflicts.PlusTensor(name="fault"), places.head()]
    )


CONFLICTS = [
    *[_in_builder(layer) for layer in conflicts.ALWAYS if layer is not conflicts.HiddenConflict],
    *[_when_called(layer) for layer in conflicts.ALWAYS],
    *[
        _at(place)
        for place in (
            "in a sequential model",
            "in a nested sequential",
            "in a nested functional",
            "inside another layer",
            "in a while loop",
            "made in call",
            "in a plain object",
            "in a time-distributed wrapper",
            "shared by two branches",
            "in a model of dicts",
            "as the last layer",
        )
    ],
    Case(
        "a conflict behind a given output shape",
        lambda half: places.in_functional(conflicts.HiddenConflict),
        _conflict(conflicts.HiddenConflict, "fault"),
    ),
    Case(
        "a conflict in training only",
        lambda half: places.in_functional(conflicts.DropPath),
        _conflict(conflicts.DropPath, "fault"),
    ),
    Case(
        "a conflict in training only, while building",
        lambda half: places.in_functional(conflicts.DropPath),
        _conflict(conflicts.DropPath, "fault"),
        as_builder=True,
    ),
    Case(
        "a conflict in training only, audited at inference",
        lambda half: places.in_functional(conflicts.DropPath),
        audit={"training": False},
    ),
    Case(
        "a conflict that the Lambda's shape inference hides",
        _lambda_conflict,
        (Expected("AMP107", "fault", planted=_lambda_conflict),),
        as_builder=True,
    ),
    Case(
        "a conflict in a model without an input shape",
        _untyped_sequential,
        _conflict(conflicts.PlusTensor, "fault"),
        audit=_INPUTS,
    ),
    Case(
        "a mixed matmul that float16 does not have",
        lambda half: places.in_functional(conflicts.TfMatmul),
        _conflict(conflicts.TfMatmul, "fault"),
        halves=("float16",),
        as_builder=True,
    ),
    Case(
        "a mixed matmul that bfloat16 has",
        lambda half: places.in_functional(conflicts.TfMatmul),
        (Expected(("AMP101", "AMP107"), "fault", planted=conflicts.TfMatmul),),
        halves=("bfloat16",),
        as_builder=True,
        tolerated=frozenset({"AMP103"}),
    ),
]


def _volume(*stack) -> keras.Model:
    return keras.Sequential(
        [keras.Input((4, 4, 4, 2)), *[make() for make in stack], layers.Flatten(), places.head()]
    )


def _volume_in_subclassed(half: str) -> keras.Model:
    model = Late(functools.partial(layers.MaxPooling3D, 2))
    model.first = layers.Conv3D(2, 1)
    model.head = layers.GlobalMaxPooling3D(dtype="float32")
    return model


def _kernel(*names: str) -> tuple[Expected, ...]:
    return (Expected("AMP401", says=names),)


def _pure(make, halves=("bfloat16",), names=("bfloat16", "cpu")) -> dict:
    def build(half):
        return keras.Sequential([keras.Input((5, faults.WIDTH)), make(), layers.Flatten()])

    return {
        "build": build,
        "expected": _kernel(*names),
        "halves": halves,
        "policy": "{half}",
        "as_builder": True,
    }


MISSING_KERNELS = [
    Case(
        "max pooling of volumes",
        lambda half: _volume(functools.partial(layers.MaxPooling3D, 2)),
        _kernel("max_pooling3d", "float16", "cpu"),
        halves=("float16",),
    ),
    Case(
        "average pooling of volumes, built by the audit",
        lambda half: _volume(functools.partial(layers.AveragePooling3D, 2)),
        _kernel("average_pooling3d", "float16", "cpu"),
        halves=("float16",),
        as_builder=True,
    ),
    Case(
        "max pooling of volumes in a subclassed model",
        _volume_in_subclassed,
        _kernel("steps/0", "float16", "cpu"),
        halves=("float16",),
        audit={"inputs": np.zeros((1, 4, 4, 4, 2), "float32")},
    ),
    Case(
        "two layers without a kernel are one finding",
        lambda half: _volume(
            functools.partial(layers.MaxPooling3D, 2, strides=1),
            functools.partial(layers.MaxPooling3D, 2),
        ),
        _kernel("max_pooling3d", "float16"),
        halves=("float16",),
    ),
    Case(
        "max pooling of volumes in bfloat16 exists",
        lambda half: _volume(functools.partial(layers.MaxPooling3D, 2)),
        halves=("bfloat16",),
    ),
    Case("an LSTM in pure bfloat16", **_pure(functools.partial(layers.LSTM, 4, name="fault"))),
    Case("a GRU in pure bfloat16", **_pure(functools.partial(layers.GRU, 4, name="fault"))),
    Case(
        "an orthogonal dense in pure bfloat16",
        **_pure(
            functools.partial(layers.Dense, 4, kernel_initializer="orthogonal", name="fault"),
            names=("bfloat16", "cpu", "fault"),
        ),
    ),
]
