"""Mixture density networks that end in the layer of keras-mdn-layer."""

from __future__ import annotations

import keras
import numpy as np
from keras_mdn_layer import MDN

from tests.corpus.architecture import Architecture

STEPS = 5
OUTPUT_DIMENSION = 2
MIXTURES = 3


def _mlp() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.Dense(15, activation="relu"),
            MDN(OUTPUT_DIMENSION, MIXTURES),
        ]
    )


def _points() -> np.ndarray:
    return np.random.default_rng(0).random((2, 1), dtype=np.float32)


def _mixture_rnn() -> keras.Model:
    inputs = keras.Input((STEPS, OUTPUT_DIMENSION))
    hidden = keras.layers.LSTM(8, return_sequences=True)(inputs)
    hidden = keras.layers.LSTM(8, return_sequences=True)(hidden)
    mixtures = keras.layers.TimeDistributed(MDN(OUTPUT_DIMENSION, MIXTURES))(hidden)
    return keras.Model(inputs, mixtures)


def _strokes() -> np.ndarray:
    return np.random.default_rng(0).random((2, STEPS, OUTPUT_DIMENSION), dtype=np.float32)


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("keras_mdn_layer/MDN", _mlp, _points),
    Architecture("keras_mdn_layer/MDN-lstm", _mixture_rnn, _strokes),
)
