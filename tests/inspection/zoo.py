"""Whole models, as people train them, clean or with one layer planted into them.

Each builder takes the head's dtype policy (None: the global one), and `plant`: None,
or a pair of a layer maker and a place in 0..1, which stands for one of the model's
places. The applications are rebuilt around the planted layer; the small models
put it in by themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import layers

Plant = tuple[Callable[..., Any], float]
CLASSES = 5
PLANTED = "planted"


def _classified(model: keras.Model, features, head: str | None, activation="softmax"):
    outputs = layers.Dense(CLASSES, activation=activation, dtype=head, name="head")(features)
    return keras.Model(model.inputs, outputs)


def _application(make, shape, head: str | None = None, plant: Plant | None = None) -> keras.Model:
    backbone = make(weights=None, include_top=False, pooling="avg", input_shape=shape)
    if plant is not None:
        backbone = rebuilt(backbone, *plant)
    return _classified(backbone, backbone.outputs[0], head)


def rebuilt(model: keras.Model, make: Callable[..., Any], place: float) -> keras.Model:
    """Clone a Functional model with a layer planted behind one of its layers."""
    names = [
        layer.name
        for layer in model.layers
        if not isinstance(layer, layers.InputLayer) and _is_one_float(layer)
    ]
    chosen = names[int(place * len(names))]

    def call(layer, *args, **kwargs):
        outputs = layer(*args, **kwargs)
        return make(name=PLANTED)(outputs) if layer.name == chosen else outputs

    return keras.models.clone_model(model, call_function=call, clone_function=_same)


def _same(layer):
    return layer.__class__.from_config(layer.get_config())


def _is_one_float(layer) -> bool:
    return isinstance(layer.output, keras.KerasTensor) and "float" in layer.output.dtype


class EncoderBlock(layers.Layer):
    """A transformer block, with room for a layer between attention and the rest."""

    def __init__(self, width: int, num_heads: int, plant=None, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(num_heads, width // num_heads)
        self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]
        self.expand = layers.Dense(2 * width, activation="gelu")
        self.contract = layers.Dense(width)
        self.dropout = layers.Dropout(0.1)
        self.planted = plant(name=PLANTED) if plant else None

    def build(self, input_shape):
        self.attention.build(input_shape, input_shape)
        for norm in self.norms:
            norm.build(input_shape)
        self.expand.build(input_shape)
        self.contract.build((*input_shape[:-1], self.expand.units))
        if self.planted is not None:
            self.planted.build(input_shape)

    def call(self, inputs, training=None, mask=None):
        attended = self.attention(inputs, inputs, use_causal_mask=True, training=training)
        if self.planted is not None:
            attended = self.planted(attended)
        hidden = self.norms[0](inputs + keras.ops.cast(attended, inputs.dtype))
        expanded = self.dropout(self.contract(self.expand(hidden)), training=training)
        return self.norms[1](hidden + expanded)

    def compute_output_shape(self, input_shape):
        return input_shape


def _slot(plant: Plant | None, slots: int) -> tuple[int, Any]:
    """Return which of the slots gets the layer, and its maker."""
    return (-1, None) if plant is None else (int(plant[1] * slots), plant[0])


def encoder(head: str | None = None, plant: Plant | None = None) -> keras.Model:
    """Three attention blocks over embedded ids; six places, three inside the blocks."""
    slot, make = _slot(plant, 6)
    ids = keras.Input((10,), dtype="int32")
    hidden = layers.Embedding(40, 16)(ids)
    for number in range(3):
        if slot == number:
            hidden = make(name=PLANTED)(hidden)
        inside = make if slot == 3 + number else None
        hidden = EncoderBlock(16, 2, inside, name=f"block{number}")(hidden)
    features = layers.GlobalAveragePooling1D()(hidden)
    return keras.Model(ids, layers.Dense(CLASSES, "softmax", dtype=head, name="head")(features))


def _recurrent(make_layer, head: str | None = None, plant: Plant | None = None) -> keras.Model:
    slot, make = _slot(plant, 5)
    ids = keras.Input((10,), dtype="int32")
    hidden = layers.Embedding(40, 16, mask_zero=True)(ids)
    steps = [
        make_layer(12, return_sequences=True),
        layers.Bidirectional(make_layer(8, return_sequences=True)),
        layers.TimeDistributed(layers.Dense(12, activation="relu")),
        make_layer(8),
    ]
    for number, step in enumerate(steps):
        hidden = make(name=PLANTED)(hidden) if slot == number else hidden
        hidden = step(hidden)
    hidden = layers.Dropout(0.1)(hidden)
    hidden = make(name=PLANTED)(hidden) if slot == 4 else hidden
    return keras.Model(ids, layers.Dense(1, "sigmoid", dtype=head, name="head")(hidden))


def planted_path(name: str, plant: Plant) -> str:
    """Return the path at which a planted layer sits in a model of the zoo."""
    slot, _ = _slot(plant, 6)
    return f"block{slot - 3}/{PLANTED}" if name == "encoder" and slot >= 3 else PLANTED


SMALL = {
    "encoder": encoder,
    "LSTM": functools.partial(_recurrent, layers.LSTM),
    "GRU": functools.partial(_recurrent, layers.GRU),
}
LARGE = {
    "ResNet50": functools.partial(_application, keras.applications.ResNet50, (32, 32, 3)),
    "ConvNeXtTiny": functools.partial(_application, keras.applications.ConvNeXtTiny, (32, 32, 3)),
    "EfficientNetB0": functools.partial(
        _application, keras.applications.EfficientNetB0, (32, 32, 3)
    ),
    "MobileNetV3Small": functools.partial(
        _application, keras.applications.MobileNetV3Small, (32, 32, 3)
    ),
}
ZOO = {**SMALL, **LARGE}
