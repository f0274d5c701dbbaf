"""What all functions that run a train step say of it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp

X, Y = np.ones((2, 3), "float32"), np.ones((2, 1), "float32")


class Own(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.parametrize("run", [amp.measure_numerics, amp.compare_gradients, amp.find_nonfinite])
@pytest.mark.parametrize(("kind", "count"), [(Own, 1), (keras.Sequential, 0)])
def test_a_train_step_that_was_not_called_is_told(run: Any, kind: Any, count: int) -> None:
    model = kind([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    notes = run(model, X, Y, loss_scale=2.0, verbose=0).notes
    told = [note for note in notes if "train_step" in note]
    assert told == ["Own.train_step was not called: this is the step of `fit`."] * count


@pytest.mark.parametrize("run", [amp.measure_numerics, amp.compare_gradients, amp.find_nonfinite])
def test_who_else_watches_operations_is_left_out_and_goes_on(run: Any) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    tf.debugging.enable_check_numerics()
    try:
        run(model, X * np.inf, Y, loss="mse", verbose=0)
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.math.log(-1.0)
    finally:
        tf.debugging.disable_check_numerics()
