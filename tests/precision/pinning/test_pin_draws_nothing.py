"""Pinning leaves the sequences of random numbers as they are, and says nothing of its trials."""

from __future__ import annotations

import random
from typing import Any

import keras

import tf_amp_kit as amp


@keras.saving.register_keras_serializable("tests")
class Block(keras.layers.Layer):
    """Made anew from its configuration, to see whether a file keeps a pin inside of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.body = keras.layers.Dense(4)
        self.scores = keras.layers.Softmax()

    def call(self, inputs: Any) -> Any:
        return self.scores(self.body(inputs))


def test_the_next_model_gets_the_seeds_that_it_would_have_got() -> None:
    with amp.amp_scope("bf16"):
        layers = [Block(name="block"), keras.layers.Dense(2, name="head")]
        model = keras.Sequential([keras.Input((4,)), *layers])
        random.seed(7)
        expected = random.random()
        random.seed(7)
        # Warnings are errors here: those of trials are nobody's business.
        pins = amp.pin_float32(model)
    assert (pins.paths, random.random()) == (("block/scores", "head"), expected)
