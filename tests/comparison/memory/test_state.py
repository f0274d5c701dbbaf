"""Slots by hand: how many numbers of the weights' size each optimizer keeps."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tf_amp_kit.comparison.memory.parts import kept_bytes
from tf_amp_kit.comparison.memory.state import WeightSpec, slot_sizes
from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.hardware.memory import resident_bytes

WEIGHTS = [WeightSpec("kernel", (10, 20)), WeightSpec("bias", (20,))]
NUM_BYTES = 4 * (10 * 20 + 20)
# Counters, scales and learning rates are a few numbers.
FEW = 128


@pytest.mark.parametrize(
    ("optimizer", "num_slots"),
    [
        (keras.optimizers.SGD(), 0),
        (keras.optimizers.SGD(momentum=0.9), 1),
        (keras.optimizers.Adam(), 2),
        (keras.optimizers.Adam(amsgrad=True), 3),
        (keras.optimizers.Adam(use_ema=True), 3),
        (keras.optimizers.Adam(gradient_accumulation_steps=4), 3),
        (keras.optimizers.SGD(gradient_accumulation_steps=4), 1),
        (keras.optimizers.RMSprop(), 1),
        (keras.optimizers.Lion(), 1),
        (keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), 2),
        (amp.make_loss_scale_optimizer("adam", precision="fp16"), 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_optimizer_keeps_so_many_numbers_for_each_weight(optimizer, num_slots) -> None:
    found = sum(slot_sizes(optimizer, WEIGHTS))
    assert 0 <= found - num_slots * NUM_BYTES <= FEW


def test_adafactor_of_keras_keeps_the_whole_besides_a_row_and_a_column() -> None:
    sizes = slot_sizes("adafactor", [WeightSpec("kernel", (1000, 2000))])
    assert sorted(sizes)[-3:] == [4 * 1000, 4 * 2000, 4 * 1000 * 2000]


def test_slots_are_those_that_the_optimizer_really_makes() -> None:
    model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(20)])
    model.compile(keras.optimizers.Adam(amsgrad=True, gradient_accumulation_steps=2), "mse")
    model.train_on_batch(np.ones((2, 10)), np.ones((2, 20)))
    real = sum(variable.numpy().nbytes for variable in model.optimizer.variables)
    assert sum(slot_sizes(model.optimizer, WEIGHTS)) == real


def test_an_optimizer_that_is_counted_stays_as_it_is() -> None:
    optimizer = keras.optimizers.Adam()
    slot_sizes(optimizer, WEIGHTS)
    assert not optimizer.built
    assert len(optimizer.variables) == 2


def test_weights_that_are_not_trained_have_no_slots() -> None:
    frozen = [WeightSpec("kernel", (1000, 1000), is_trainable=False)]
    assert sum(slot_sizes("adam", frozen)) <= FEW


def test_seven_billion_weights_in_float32_with_adam_are_112_gigabytes() -> None:
    before = resident_bytes()
    kept = kept_bytes([WeightSpec("w", (70_000, 100_000))], "adam")
    assert (kept.weights, kept.gradients) == (28 * 10**9, 28 * 10**9)
    assert 0 <= kept.slots - 56 * 10**9 <= FEW
    assert 0 <= kept.total - 112 * 10**9 <= FEW
    assert resident_bytes() - before < 10**9


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(OptimizerError, match="Received: optimizer='adma'"):
        slot_sizes("adma", WEIGHTS)
