"""Clean models of vectors and of several inputs."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers, ops

from . import clean_layers as own
from .slots import BATCH, CLASSES, WIDTH, Built, Slots, labels, values


def _chain(slots: Slots, x, **steps) -> Built:
    """Make a model of layers in a row, with a place behind each."""
    inputs = hidden = keras.Input(x.shape[1:])
    for place, step in steps.items():
        hidden = slots.after(place, step(hidden))
    return slots.finish(inputs, hidden, x)


def mlp(slots: Slots) -> Built:
    return _chain(
        slots,
        values(WIDTH),
        first=layers.Dense(WIDTH, "relu"),
        dropout=layers.Dropout(0.3),
        second=layers.Dense(WIDTH, "gelu"),
        third=layers.Dense(WIDTH),
    )


def masked_softmax(slots: Slots) -> Built:
    """Two ways to mask: Keras's layer, one row masked fully, and minus infinity by hand."""
    x, keep = values(WIDTH), np.tile(np.arange(WIDTH) % 2 == 0, (BATCH, 1))
    keep[1] = False
    inputs, mask = keras.Input((WIDTH,)), keras.Input((WIDTH,), dtype="bool")
    hidden = slots.after("first", layers.Dense(WIDTH)(inputs))
    masked = slots.after("masked", layers.Softmax()(hidden, mask=mask))
    # An operation drops Keras's mask, which does not fit the labels.
    hidden = ops.add(hidden, masked)
    hidden = slots.after("second", layers.Dense(WIDTH)(hidden))
    hidden = slots.after("by_hand", own.HandMask()(hidden))
    return slots.finish([inputs, mask], hidden, [x, keep])


def log_sum_exp(slots: Slots) -> Built:
    return _chain(
        slots,
        values(WIDTH),
        first=layers.Dense(WIDTH),
        log_sum_exp=own.LogSumExp(),
        heat=own.VanishingTemperature(),
        second=layers.Dense(WIDTH),
    )


def safe_math(slots: Slots) -> Built:
    x = values(WIDTH)
    x[0] = 0.0
    return _chain(
        slots,
        x,
        unit_length=own.UnitLength(),
        first=layers.Dense(WIDTH, use_bias=False),
        log_and_root=own.SafeLogAndRoot(),
        second=layers.Dense(WIDTH),
    )


def norms(slots: Slots) -> Built:
    """Rows of zero variance through the norms, and a spectral norm."""
    return _chain(
        slots,
        values(WIDTH),
        zero_rows=own.ZeroRows(),
        layer_norm=layers.LayerNormalization(),
        spectral=layers.SpectralNormalization(layers.Dense(WIDTH)),
        zero_rows_again=own.ZeroRows(),
        group_norm=layers.GroupNormalization(2),
        second=layers.Dense(WIDTH),
    )


class OwnLoss(keras.Model):
    """A subclassed model that computes its loss by itself."""

    def __init__(self, slots: Slots):
        super().__init__()
        self.first, self.after_first = layers.Dense(WIDTH, "tanh"), slots.at("first")
        self.second, self.after_second = layers.Dense(WIDTH), slots.at("second")
        self.head = slots.head()

    def call(self, inputs):
        hidden = self.after_first(self.first(inputs))
        return self.head(self.after_second(self.second(hidden)))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.01 * ops.mean(ops.square(y_pred))


def custom_compute_loss(slots: Slots) -> Built:
    x, model = values(WIDTH), OwnLoss(slots)
    model(x)
    return Built(slots.compile(model), (x, labels()))


def graph_functions(slots: Slots) -> Built:
    return _chain(
        slots,
        values(WIDTH),
        first=layers.Dense(WIDTH),
        graph=own.GraphLayer(),
        second=layers.Dense(WIDTH),
        graph_again=own.GraphLayer(),
    )


def loops(slots: Slots) -> Built:
    return _chain(
        slots,
        values(WIDTH),
        first=layers.Dense(WIDTH),
        loop=own.Iterated(),
        loop_by_tensorflow=own.IteratedByTensorFlow(),
        scan=own.Decayed(),
    )


def branches(slots: Slots) -> Built:
    return _chain(
        slots,
        values(WIDTH),
        first=layers.Dense(WIDTH),
        branch=own.Branched(),
        second=layers.Dense(WIDTH),
        mapped=own.Mapped(),
    )


def gradient_tricks(slots: Slots) -> Built:
    x = values(WIDTH)
    inputs = keras.Input((WIDTH,))
    hidden = slots.after("first", layers.Dense(WIDTH)(inputs))
    hidden = slots.after("clipped", own.ClippedGradient()(hidden))
    hidden = slots.after("recomputed", own.Recomputed()(hidden))
    hidden = slots.after("lambda", layers.Lambda(lambda tensor: tensor * 0.5)(hidden))
    still = layers.Lambda(ops.stop_gradient)(hidden)
    hidden = slots.after("joined", layers.Concatenate()([hidden, still]))
    return slots.finish(inputs, hidden, x)


def regularized(slots: Slots) -> Built:
    penalty = own.Float32L2()
    return _chain(
        slots,
        values(WIDTH),
        weights=layers.Dense(WIDTH, kernel_regularizer=penalty),
        activities=layers.Dense(WIDTH, activity_regularizer=penalty),
        penalty=own.WithPenalty(),
    )


def many_inputs(slots: Slots) -> Built:
    """Dicts in and out, loss weights and sample weights."""
    x = {"wide": values(WIDTH), "narrow": values(2)}
    inputs = {name: keras.Input(part.shape[1:], name=name) for name, part in x.items()}
    left = slots.after("left", layers.Dense(WIDTH, "relu")(inputs["wide"]))
    right = slots.after("right", layers.Dense(WIDTH)(inputs["narrow"]))
    both = slots.after("both", layers.Add()([left, right]))
    outputs = {"head": slots.head()(both), "value": slots.head(1, "value")(left)}
    model = keras.Model(inputs, outputs)
    usual = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(
        "sgd",
        {"head": slots.loss or usual, "value": "mse"},
        metrics={"head": slots.metrics},
        loss_weights={"head": 1.0, "value": 0.1},
    )
    targets = {"head": np.eye(CLASSES, dtype="float32")[labels()], "value": values(1)}
    weight = np.array([1.0, 0.0, 0.5, 2.0], "float32")
    return Built(model, (x, targets, {"head": weight, "value": weight}))
