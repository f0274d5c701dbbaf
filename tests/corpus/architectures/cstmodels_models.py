"""The convolutional set transformer of cstmodels, and small models of its layers."""

from __future__ import annotations

import keras
import numpy as np
from cstmodels import CST15, SetConv2D, SmartReshape2D

from tests.corpus.architecture import Architecture

SET_SIZE = 2
IMAGE_SIZE = 32


def _image_sets() -> np.ndarray:
    shape = (2, SET_SIZE, IMAGE_SIZE, IMAGE_SIZE, 3)
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def _small_set_classifier() -> keras.Model:
    inputs = keras.Input((None, IMAGE_SIZE, IMAGE_SIZE, 3))
    hidden, set_size = SmartReshape2D()(inputs)
    hidden = SetConv2D(4, 3, activation="relu")(hidden, set_size=set_size)
    hidden = keras.layers.MaxPooling2D(4)(hidden)
    hidden = SetConv2D(8, 3, activation="gelu", mhsa_dropout=0.1)(hidden, set_size=set_size)
    hidden = keras.layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("cstmodels/CST15", lambda: CST15(pretrained=False), _image_sets),
    Architecture("cstmodels/SetConv2D", _small_set_classifier, _image_sets),
)
