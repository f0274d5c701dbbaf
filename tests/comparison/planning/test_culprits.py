"""Where NaN or Inf began: by records made by hand, and by models that overflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.comparison.planning.running.culprits import find_culprits
from tf_amp_kit.comparison.planning.running.results import Results
from tf_amp_kit.comparison.planning.running.runs import Runs
from tf_amp_kit.comparison.planning.running.watch import Extremes
from tf_amp_kit.comparison.planning.units import Unit, find_units
from tf_amp_kit.data import Batch, batch_specs
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Conflict
from tf_amp_kit.tracing.step_phases import OUTPUTS

UNITS = [Unit(path, "Dense") for path in ("a", "block", "block/b", "c")]

FINE, MAKES, PASSES, STOPS = (True, True), (True, False), (False, False), (False, True)


def results_of(**seen: tuple[bool, bool]) -> Results:
    """What one batch gave, by whether each unit took and returned finite numbers."""
    extremes = (Extremes(path.replace("__", "/"), 1.0, *one) for path, one in seen.items())
    return Results({}, None, {}, tuple(extremes))


def trace_of(*conflicts: Conflict) -> ModelTrace:
    return ModelTrace(None, False, (), (), (), (), {}, {}, conflicts)


def conflict_in(path: str) -> Conflict:
    return Conflict(path, "Dense", ("float16", "float32"), (), "It raised.", None)


def culprits_of(
    wide: Sequence[Results], half: Sequence[Results], *conflicts: Conflict
) -> tuple[str, ...]:
    return find_culprits(wide, half, trace_of(*conflicts), UNITS)


ALL_FINE = results_of(a=FINE, block__b=FINE, block=FINE, c=FINE)


class TestRecords:
    def test_where_all_is_finite_nobody_is_to_blame(self):
        assert culprits_of([ALL_FINE], [ALL_FINE]) == ()

    def test_a_unit_that_takes_finite_numbers_and_returns_others_is_to_blame(self):
        half = results_of(a=MAKES, block__b=PASSES, block=PASSES, c=PASSES)
        assert culprits_of([ALL_FINE], [half]) == ("a",)

    def test_of_a_composite_the_innermost_unit_is(self):
        half = results_of(a=FINE, block__b=MAKES, block=MAKES, c=PASSES)
        assert culprits_of([ALL_FINE], [half]) == ("block/b",)

    def test_a_composite_is_if_no_unit_in_it_is(self):
        half = results_of(a=FINE, block__b=FINE, block=MAKES, c=PASSES)
        assert culprits_of([ALL_FINE], [half]) == ("block",)

    def test_a_unit_that_makes_it_in_float32_too_is_not(self):
        both = results_of(a=MAKES, block__b=PASSES, block=PASSES, c=STOPS)
        assert culprits_of([both], [both]) == ()

    def test_units_of_all_batches_are_named_once_in_order(self):
        first = results_of(a=FINE, block__b=FINE, block=FINE, c=MAKES)
        second = results_of(a=MAKES, block__b=PASSES, block=PASSES, c=MAKES)
        assert culprits_of([ALL_FINE] * 3, [first, second, first]) == ("c", "a")

    def test_it_has_to_be_finite_in_float32_in_the_same_batch(self):
        infinite = results_of(a=MAKES, block__b=PASSES, block=PASSES, c=PASSES)
        wide, half = [infinite, ALL_FINE], [infinite, ALL_FINE]
        assert culprits_of(wide, half) == ()

    def test_of_two_calls_of_a_layer_one_is_enough(self):
        twice = Results({}, None, {}, (Extremes("a", 1.0, *FINE), Extremes("a", 1.0, *FINE)))
        half = Results({}, None, {}, (Extremes("a", 1.0, *FINE), Extremes("a", 1.0, *MAKES)))
        assert culprits_of([twice], [half]) == ("a",)

    @pytest.mark.parametrize(("path", "expected"), [("c", "c"), ("block/b/inner", "block/b")])
    def test_a_unit_that_raised_is_to_blame_or_the_one_around(self, path, expected):
        assert culprits_of([ALL_FINE], [ALL_FINE], conflict_in(path)) == (expected,)

    def test_code_of_the_model_that_raised_is_no_unit(self):
        assert culprits_of([ALL_FINE], [ALL_FINE], conflict_in("")) == ()


# --- really run ---

ONES = np.ones((2, 3), np.float32)


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_float16")


def found_in(model: keras.Model, x: Any = ONES, pins: Sequence[str] = ()) -> tuple[str, ...]:
    runs = Runs(model, batch_specs((x,)), None, DrawingLayers((), ()))
    units = find_units(runs.with_pins((), OUTPUTS, None).step, runs.paths)
    paths = {unit.path for unit in units}
    half, wide = runs.with_pins(pins, OUTPUTS, paths), runs.float32(OUTPUTS, paths)
    batch = Batch(tf.constant(x))
    return find_culprits([wide.on(batch)], [half.on(batch)], half.step.trace, units)


def scaled(factor: float, name: str, **options: Any) -> layers.Layer:
    return layers.Rescaling(factor, name=name, **options)


def sequence(*stack: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((3,)), *stack])


class Shrunk(layers.Layer):
    """Overflows between two layers of its own, whose results are finite."""

    def __init__(self, factor: float, **options: Any) -> None:
        super().__init__(**options)
        self.up, self.down = scaled(factor, "up"), scaled(1e-4, "down")

    def call(self, x: Any) -> Any:
        large = self.up(x)
        return self.down(large * large) * 1e-4

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


class TestModels:
    def test_a_model_that_fits_has_none(self):
        assert found_in(sequence(scaled(3, "a"), scaled(2, "b"))) == ()

    def test_the_layer_that_overflows_is_to_blame(self):
        model = sequence(scaled(300, "a"), scaled(300, "b"), scaled(1e-4, "c"))
        assert found_in(model) == ("b",)

    def test_once_it_is_pinned_the_one_that_casts_its_result_is(self):
        model = sequence(scaled(300, "a"), scaled(300, "b"), scaled(1e-3, "c"))
        assert found_in(model, pins=["b"]) == ("c",)
        assert found_in(model, pins=["b", "c"]) == ()

    def test_a_layer_that_casts_data_beyond_the_format_is_to_blame(self):
        assert found_in(sequence(scaled(1e-3, "a"), scaled(1, "b")), ONES * 1e5) == ("a",)

    def test_an_overflow_in_the_code_of_a_composite_is_the_composite_s(self):
        assert found_in(sequence(Shrunk(300.0, name="block"), scaled(1, "c"))) == ("block",)

    def test_an_overflow_of_a_part_is_the_part_s(self):
        assert found_in(sequence(Shrunk(1e5, name="block"))) == ("block/up",)

    def test_an_overflow_between_layers_is_of_those_that_gave(self):
        x = keras.Input((3,))
        left, right = scaled(300, "left")(x), scaled(301, "right")(x)
        scaled_down = scaled(1e-5, "down")(ops.multiply(left, right))
        model = keras.Model(x, layers.Add(name="sum")([scaled_down, scaled(1, "other")(x)]))
        assert sorted(found_in(model)) == ["left", "right"]

    def test_layers_before_those_that_gave_have_nothing_to_do_with_it(self):
        x = keras.Input((3,))
        left = scaled(300, "left")(scaled(1, "before")(x))
        model = keras.Model(x, scaled(1e-5, "down")(ops.multiply(left, left)))
        assert found_in(model) == ("left",)

    def test_a_layer_that_raises_in_half_precision_is_to_blame(self):
        class Mixed(layers.Layer):
            def call(self, x: Any) -> Any:
                return tf.add(x, tf.ones((3,)))

            def compute_output_shape(self, shape: Any) -> Any:
                return shape

        assert found_in(sequence(scaled(2, "a"), Mixed(name="b"))) == ("b",)

    def test_infinities_that_are_meant_are_nobody_s(self):
        class Masks(layers.Layer):
            def call(self, x: Any) -> Any:
                return ops.where(x > 0, x, -math.inf)

        model = sequence(scaled(1, "a"), Masks(name="mask"), layers.Softmax(name="softmax"))
        assert found_in(model, np.array([[1, -1, 2]], np.float32)) == ()
