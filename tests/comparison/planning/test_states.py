"""Layers that keep something from call to call: their shadows start where they did."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.probing.sampling import Probing
from tf_amp_kit.comparison.planning.running.runs import Runs
from tf_amp_kit.comparison.planning.units import find_units
from tf_amp_kit.data import Batch, batch_specs
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_phases import OUTPUTS

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 5, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_float16")


def runs_of(model: keras.Model, x: Any) -> Runs:
    return Runs(model, batch_specs((x,)), None, DrawingLayers((), ()))


def effects_of(model: keras.Model, x: Any = X) -> Effects:
    """With a weight of one over the norm of the output, so that scores are relative."""
    runs, batch = runs_of(model, x), Batch(tf.constant(x))
    step = runs.with_pins((), OUTPUTS, None).step
    (wide,) = runs.float32(OUTPUTS, None).on(batch).outputs.items()
    weights = {wide[0]: 1 / float(np.linalg.norm(wide[1]))}
    probing = Probing(runs, find_units(step, runs.paths), "float16", "output", weights)
    return probing.effects([batch], 4, 0, {})


def error_alone(model: keras.Model, path: str, x: Any = X) -> float:
    """Really runs the model with one layer in half precision."""
    runs, batch = runs_of(model, x), Batch(tf.constant(x))
    others = [layer.name for layer in model.layers if layer.name != path]
    wide, half = (
        next(iter(run.on(batch).outputs.values())).astype(np.float64)
        for run in (runs.float32(OUTPUTS, None), runs.with_pins(others, OUTPUTS, None))
    )
    return float(np.linalg.norm(half - wide) / np.linalg.norm(wide))


def values_of(model: keras.Model) -> list[Any]:
    return [one.numpy().tobytes() for one in state_of(model)]


def state_of(model: keras.Model) -> list[Any]:
    """All variables, and the states of recurrent layers, which Keras does not count."""
    found = {id(one.value): one.value for one in model.variables}
    for _, layer in LayerPaths(model):
        for one in tf.nest.flatten(getattr(layer, "states", None) or []):
            found[id(one.value)] = one.value
    return list(found.values())


def recurrent() -> keras.Model:
    stack = [layers.LSTM(6, stateful=True, return_sequences=True, name="lstm")]
    stack += [layers.GRU(6, stateful=True, name="gru"), layers.Dense(3, name="head")]
    model = keras.Sequential([keras.Input(batch_shape=(32, 5, 4)), *stack])
    for layer in model.layers[:2]:  # begins in the middle of a sequence
        for state in tf.nest.flatten(layer.states):
            state.assign(RNG.normal(size=state.shape))
    return model


class Counts(layers.Layer):
    """Multiplies by how often it was called, which it counts itself."""

    def build(self, shape: Any) -> None:
        self.count = self.add_weight(shape=(), initializer="ones", trainable=False, name="count")

    def call(self, x: Any) -> Any:
        self.count.assign(self.count + 1.0)
        # The variable without a cast: numbers that float16 has.
        return x * ops.cast(self.count.value, x.dtype)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class Noise(layers.Layer):
    """Draws in float32, and so the same numbers in either precision."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.generator = keras.random.SeedGenerator(5)

    def call(self, x: Any) -> Any:
        noise = keras.random.normal(ops.shape(x), dtype="float32", seed=self.generator)
        return x + ops.cast(noise, x.dtype)

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def counting() -> keras.Model:
    stack = layers.Dense(4, name="a"), Counts(name="counts"), layers.Dense(3, name="head")
    return keras.Sequential([keras.Input((5, 4)), *stack])


def noisy() -> keras.Model:
    stack = layers.Dense(4, name="a"), Noise(name="noise"), layers.Dense(3, name="head")
    return keras.Sequential([keras.Input((5, 4)), *stack])


CASES = {
    "recurrent": (recurrent, ["lstm", "gru", "head"]),
    "counting": (counting, ["a", "counts", "head"]),
    "noisy": (noisy, ["a", "noise", "head"]),
}


@pytest.mark.parametrize("case", CASES)
def test_scores_are_what_one_layer_in_half_precision_does(case):
    build, paths = CASES[case]
    model = build()
    effects = effects_of(model)
    scores = {path: effects.score(path) for path in paths}
    # If a shadow started from what the layer left, scores would be above 0.1.
    assert scores == pytest.approx({path: error_alone(model, path) for path in paths}, rel=0.1)
    assert max(scores.values()) < 0.002


@pytest.mark.parametrize("case", CASES)
def test_what_layers_keep_is_as_before_afterwards(case):
    model = CASES[case][0]()
    before = values_of(model)
    effects_of(model)
    assert values_of(model) == before


def test_a_layer_that_is_called_twice_counts_on_from_call_to_call():
    shared = Counts(name="counts")
    model = keras.Sequential([keras.Input((5, 4)), shared, layers.Dense(4, name="a"), shared])
    before = values_of(model)
    effects = effects_of(model)
    alone = {path: error_alone(model, path) for path in ("counts", "a")}
    assert {path: effects.score(path) for path in alone} == pytest.approx(alone, rel=0.1)
    assert values_of(model) == before
