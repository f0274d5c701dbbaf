"""What is seen of units while a model runs: magnitudes and the first NaN, by hand."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.comparison.planning.running.watch import Extremes, Watch, float_tensors
from tf_amp_kit.data import Batch
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS, Observers

INF, NAN = math.inf, math.nan


def seen_of(model: keras.Model, x: Any, units: Any, in_float32: bool = True) -> list[Extremes]:
    """Runs a model once and tells what a watch saw."""
    watch, seen = Watch(units), []
    observers = Observers(on_outputs=watch.on_outputs, on_end=lambda _: seen.append(watch.tensor()))
    x = tf.nest.map_structure(tf.constant, x)
    step = trace_step(
        model, (x,), in_float32=in_float32, observers=observers, until=OUTPUTS, training=False
    )
    (values,) = StepRunner(step).function(seen)(Batch(x, None, None), 1.0)
    return watch.extremes(values.numpy())


def scaled(factor: float, name: str, **options: Any) -> layers.Layer:
    return layers.Rescaling(factor, name=name, **options)


def sequence(*stack: layers.Layer, **options: Any) -> keras.Model:
    return keras.Sequential([keras.Input((3,), **options), *stack])


X = np.array([[1, -4, 2]], np.float32)


def test_the_largest_magnitude_is_of_what_goes_in_and_what_comes_out():
    model = sequence(scaled(0.5, "a"), scaled(-8, "b"))
    assert seen_of(model, X, {"a", "b"}) == [
        Extremes("a", 4.0, True, True),
        Extremes("b", 16.0, True, True),
    ]


def test_only_the_units_are_looked_at():
    model = sequence(scaled(0.5, "a"), scaled(-8, "b"))
    assert [one.path for one in seen_of(model, X, {"b"})] == ["b"]


def test_without_units_all_layers_are_looked_at_from_the_inside_out():
    inner = keras.Sequential([scaled(2, "a")], name="inner")
    paths = [one.path for one in seen_of(sequence(inner, scaled(2, "b")), X, None)]
    assert paths == ["inner/a", "inner", "b", ""]


def test_no_units_leave_nothing_to_see():
    assert seen_of(sequence(scaled(2, "a")), X, set()) == []


def test_each_call_is_seen_by_itself():
    shared = scaled(-2, "a")
    model = sequence(shared, scaled(0.125, "b"), shared)
    assert [one.largest for one in seen_of(model, X, {"a"})] == [8.0, 2.0]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_is_not_finite_is_told_of_both_sides_and_is_no_magnitude(bad):
    model = sequence(scaled(2, "a"))
    x = np.array([[1, bad, -3]], np.float32)
    assert seen_of(model, x, {"a"}) == [Extremes("a", 6.0, False, False)]


def test_the_unit_that_makes_an_infinity_took_finite_numbers():
    keras.config.set_dtype_policy("mixed_float16")
    model = sequence(scaled(2**14, "a"), layers.ReLU(name="b"))
    assert seen_of(model, -X, {"a", "b"}, in_float32=False) == [
        Extremes("a", 2.0**15, True, False),  # 65536 is none, 32768 is the largest left
        Extremes("b", 2.0**15, False, False),
    ]


def test_the_unit_that_stops_an_infinity_returns_finite_numbers():
    class Clipped(layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.clip(x, -5, 5)

    x = np.array([[1, INF, -3]], np.float32)
    assert seen_of(sequence(Clipped(name="a")), x, {"a"}) == [Extremes("a", 5.0, False, True)]


def test_integers_are_no_magnitudes():
    model = sequence(
        layers.Embedding(500, 1, embeddings_initializer="ones", name="a"), dtype="int32"
    )
    assert seen_of(model, np.array([[400, 2, 3]], np.int32), {"a"}) == [
        Extremes("a", 1.0, True, True)
    ]


def test_all_inputs_and_outputs_count():
    class Swap(layers.Layer):
        def call(self, a: Any, b: Any = None) -> Any:
            return {"one": b, "two": [a, a / 0.0 if b is None else a * 3]}

    inputs = [keras.Input((1,)), keras.Input((1,))]
    out = Swap(name="a")(inputs[0], b=inputs[1])
    model = keras.Model(inputs, [out["one"], *out["two"]])
    x = [np.array([[2]], np.float32), np.array([[-5]], np.float32)]
    assert seen_of(model, x, {"a"}) == [Extremes("a", 6.0, True, True)]


def test_tensors_without_elements_have_no_magnitude():
    model = sequence(scaled(2, "a"))
    assert seen_of(model, np.zeros((0, 3), np.float32), {"a"}) == [Extremes("a", 0.0, True, True)]


def test_layers_in_the_body_of_a_loop_are_passed_over():
    class Loop(layers.Layer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.inner = scaled(2, "inner")

        def call(self, x: Any) -> Any:
            (y,) = tf.while_loop(
                lambda _: True, lambda y: (self.inner(y),), (x,), maximum_iterations=3
            )
            return y

    assert seen_of(sequence(Loop(name="a")), X, {"a", "a/inner"}) == [
        Extremes("a", 32.0, True, True)
    ]


def test_what_hands_on_is_as_it_was():
    watch = Watch(None)
    model = sequence(scaled(2, "a"))
    observers = Observers(on_outputs=watch.on_outputs)
    step = trace_step(model, (X,), observers=observers, until=OUTPUTS)
    (key,) = step.model_outputs.values()
    (values,) = StepRunner(step).function([step.reader.symbolic[key]])(
        Batch(tf.constant(X), None, None), 1.0
    )
    np.testing.assert_array_equal(values, 2 * X)


def test_float_tensors_are_found_in_any_structure():
    half, wide = tf.zeros(2, tf.float16), tf.zeros(2)
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    found = float_tensors({"b": [half, 3.0, None], "a": (tf.zeros(2, tf.int32), wide, ragged)})
    assert [one.shape[0] for one in found] == [2, 3, 2]  # dictionaries go by key
    assert [one.dtype for one in found] == [tf.float32, tf.float32, tf.float16]
