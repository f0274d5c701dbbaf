"""Clean models of images and of sequences."""

from __future__ import annotations

import keras
import numpy as np
from keras import layers, ops

from .clean_layers import GatedCell
from .slots import BATCH, LENGTH, WIDTH, Built, Slots, values


def _ids() -> np.ndarray:
    """Return ids whose rows end in padding."""
    ids = np.random.default_rng(3).integers(1, 10, (BATCH, LENGTH)).astype("int32")
    ids[0, 3:] = 0
    ids[1, 1:] = 0
    return ids


def cnn(slots: Slots) -> Built:
    x = values(8, 8, 2)
    inputs = keras.Input(x.shape[1:])
    hidden = slots.after("first", layers.Conv2D(4, 3, padding="same")(inputs))
    hidden = slots.after("norm", layers.BatchNormalization()(hidden))
    hidden = layers.MaxPooling2D()(layers.ReLU()(hidden))
    hidden = slots.after("pooled", hidden)
    hidden = slots.after("second", layers.Conv2D(WIDTH, 3)(hidden))
    hidden = slots.after("average", layers.GlobalAveragePooling2D()(hidden))
    return slots.finish(inputs, hidden, x)


def unet(slots: Slots) -> Built:
    x = values(4, 4, 2)
    inputs = keras.Input(x.shape[1:])
    skip = slots.after("wide", layers.DepthwiseConv2D(3, padding="same")(inputs))
    hidden = layers.Conv2D(4, 3, 2, padding="same", activation="relu")(skip)
    hidden = slots.after("down", hidden)
    hidden = layers.Conv2DTranspose(4, 2, 2, padding="same")(hidden)
    hidden = slots.after("up", hidden)
    hidden = slots.after("joined", layers.Concatenate()([hidden, skip]))
    return slots.finish(inputs, layers.Flatten()(hidden), x)


def lstm(slots: Slots) -> Built:
    x = _ids()
    inputs = keras.Input((LENGTH,), dtype="int32")
    hidden = slots.after("ids", layers.Embedding(10, WIDTH, mask_zero=True)(inputs))
    hidden = slots.after("first", layers.LSTM(WIDTH, return_sequences=True)(hidden))
    hidden = slots.after("second", layers.LSTM(WIDTH)(hidden))
    return slots.finish(inputs, hidden, x)


def bidirectional(slots: Slots) -> Built:
    x = values(LENGTH, 3)
    inputs = keras.Input(x.shape[1:])
    both = layers.Bidirectional(layers.GRU(4, return_sequences=True))
    hidden = slots.after("both", both(inputs))
    hidden = slots.after("gru", layers.GRU(WIDTH)(hidden))
    return slots.finish(inputs, hidden, x)


def custom_cell(slots: Slots) -> Built:
    x = values(LENGTH, 3)
    inputs = keras.Input(x.shape[1:])
    cells = [slots.cell_for(place, GatedCell, 4) for place in ("first", "second")]
    hidden = layers.RNN(cells[0], return_sequences=True, name="first")(inputs)
    hidden = slots.after("first", hidden)
    hidden = slots.after("second", layers.RNN(cells[1], name="second")(hidden))
    return slots.finish(inputs, hidden, x)


def conv_lstm(slots: Slots) -> Built:
    x = values(3, 4, 4, 1)
    inputs = keras.Input(x.shape[1:])
    hidden = slots.after("first", layers.ConvLSTM2D(2, 2, padding="same")(inputs))
    hidden = slots.after("flat", layers.Flatten()(hidden))
    return slots.finish(inputs, hidden, x)


def time_distributed(slots: Slots) -> Built:
    x = values(LENGTH, 3)
    inputs = keras.Input(x.shape[1:])
    hidden = layers.TimeDistributed(layers.Dense(WIDTH, "relu"))(inputs)
    hidden = slots.after("each", hidden)
    hidden = layers.TimeDistributed(layers.LayerNormalization())(hidden)
    hidden = slots.after("norm", hidden)
    return slots.finish(inputs, layers.GlobalAveragePooling1D()(hidden), x)


def transformer(slots: Slots) -> Built:
    """Causal and padding masks; the second sample is padding alone."""
    x = _ids()
    x[1] = 0
    inputs = keras.Input((LENGTH,), dtype="int32")
    embedded = layers.Embedding(10, WIDTH, mask_zero=True)(inputs)
    embedded = slots.after("ids", embedded)
    attention = layers.MultiHeadAttention(2, 4, dropout=0.1)
    attended = attention(embedded, embedded, use_causal_mask=True)
    attended = slots.after("attention", attended)
    hidden = layers.LayerNormalization()(layers.Add()([embedded, attended]))
    hidden = slots.after("norm", hidden)
    expanded = slots.after("expand", layers.Dense(WIDTH, "gelu")(hidden))
    hidden = slots.after("block", layers.Add()([hidden, layers.Dense(WIDTH)(expanded)]))
    # Keras's masked pooling would divide by zero for the sample of padding alone.
    return slots.finish(inputs, ops.mean(hidden, axis=1), x)
