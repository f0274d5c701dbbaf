"""Random sequences, seeded for a block and given back as they were."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit import _keras

DRAWS: dict[str, Callable[[], float]] = {
    "Python": random.random,
    "NumPy": lambda: float(np.random.random()),
    "TensorFlow": lambda: float(tf.random.uniform(())),
    "Keras": lambda: float(keras.random.uniform(())),
    "initializer": lambda: float(keras.initializers.RandomUniform()((1,))[0]),
    "generator": lambda: float(keras.random.uniform((), seed=keras.random.SeedGenerator())),
}


@pytest.fixture(autouse=True)
def _tensorflow_goes_on() -> Iterator[None]:
    yield
    keras.utils.set_random_seed(0)


def seed_all(seed: int) -> None:
    keras.utils.clear_session(free_memory=False)  # older Keras keeps its generator
    keras.utils.set_random_seed(seed)


def after_seed(draw: Callable[[], float], seed: int) -> list[float]:
    seed_all(seed)
    return [draw() for _ in range(3)]


@pytest.mark.parametrize("name", DRAWS)
def test_a_block_draws_what_its_seed_gives(name: str) -> None:
    draw = DRAWS[name]
    expected = after_seed(draw, 7)
    seed_all(99)
    draw()
    with _keras.seeded(7):
        found = [draw() for _ in range(3)]
    assert found == expected


@pytest.mark.parametrize("name", DRAWS)
def test_afterwards_the_sequence_goes_on_where_it_was_left(name: str) -> None:
    draw = DRAWS[name]
    expected = after_seed(draw, 3)
    seed_all(3)
    found = [draw()]
    with _keras.seeded(7):
        draw()
    found += [draw(), draw()]
    assert found == expected


@pytest.mark.parametrize("name", DRAWS)
def test_after_an_error_the_sequence_goes_on_too(name: str) -> None:
    draw = DRAWS[name]
    expected = after_seed(draw, 3)
    seed_all(3)
    found = [draw()]
    with pytest.raises(KeyError), _keras.seeded(7):
        raise KeyError
    found += [draw(), draw()]
    assert found == expected


def test_blocks_within_blocks_go_back_one_by_one() -> None:
    expected = after_seed(DRAWS["Keras"], 3)
    with _keras.seeded(3):
        found = [DRAWS["Keras"]()]
        with _keras.seeded(7):
            DRAWS["Keras"]()
        found += [DRAWS["Keras"](), DRAWS["Keras"]()]
    assert found == expected


def test_layers_that_are_built_in_a_block_repeat() -> None:
    def weights() -> np.ndarray:
        with _keras.seeded(5):
            layer = keras.layers.Dense(3)
            layer.build((None, 4))
            return layer.kernel.numpy()

    np.testing.assert_array_equal(weights(), weights())
