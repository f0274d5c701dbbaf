"""Constants that half precision changed, against values rounded by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.tracing.model_graph import trace_modes

# NumPy warns while the model is built, where the mask overflows.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")

L = keras.layers
X = np.full((2, 4), 0.5, "float32")
INF = float("inf")
EPSILON = 1e-8


class Runs(L.Layer):
    """Holds numbers of all kinds, and runs a function of itself and its input."""

    def __init__(self, function: Callable[[Any, Any], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.function = function
        self.eps = 1e-8
        self.eps_for_bfloat16 = 1e-42
        self.zero = 0.0
        self.almost_one = 1 - 1e-6
        self.options = {"mask": -1e9}

    def call(self, inputs: Any) -> Any:
        return self.function(self, inputs)


def found(
    function: Callable[[Any, Any], Any], policy: str = "mixed_float16"
) -> list[tuple[float, float]]:
    """Pairs of what the graph holds and what was meant."""
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input((4,)), Runs(function)])
    (trace,) = trace_modes(model, modes=[False])
    return [(one.value, one.intended) for one in trace.constants]


# float16 ends at 65504 and begins at 2**-25; 1 - 1e-8 is nearer to 1 than to 1 - 2**-11.
CHANGED: dict[str, tuple[Callable[[Any, Any], Any], float, float]] = {
    "epsilon": (lambda s, x: x / (x + 1e-8), 0.0, 1e-8),
    "epsilon by name": (lambda s, x: x / (x + EPSILON), 0.0, 1e-8),
    "epsilon by attribute": (lambda s, x: x / (x + s.eps), 0.0, 1e-8),
    "tiny": (lambda s, x: keras.ops.maximum(x, 1e-12), 0.0, 1e-12),
    "almost one by attribute": (lambda s, x: keras.ops.minimum(x, s.almost_one), 1.0, 1 - 1e-6),
    "mask": (lambda s, x: x + -1e9, -INF, -1e9),
    "mask by key": (lambda s, x: x + s.options["mask"], -INF, -1e9),
    "large": (lambda s, x: keras.ops.minimum(x, 1e5), INF, 1e5),
    "where": (lambda s, x: keras.ops.where(x > 0, x, -1e9), -INF, -1e9),
    "constant of its dtype": (lambda s, x: x + tf.constant(1e-8, x.dtype), 0.0, 1e-8),
    "converted": (lambda s, x: x + keras.ops.convert_to_tensor(1e-8, x.dtype), 0.0, 1e-8),
    "cast": (lambda s, x: x + keras.ops.cast(1e-8, x.dtype), 0.0, 1e-8),
    "cast mask": (lambda s, x: x + keras.ops.cast(-1e9, x.dtype), -INF, -1e9),
    "array mask": (lambda s, x: x + np.array([0.0, -1e9, 0.0, -1e9], "float32"), -INF, -1e9),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_changed_constant_is_found_with_what_was_meant(case: str) -> None:
    function, value, intended = CHANGED[case]
    constants = found(function)
    assert [value for value, _ in constants] == [value]
    np.testing.assert_allclose([meant for _, meant in constants], [intended], rtol=1e-6)


def test_one_minus_epsilon_is_read_off_its_line() -> None:
    # float32 cannot tell it from one either, so that only the line shows what was meant.
    def function(s: Any, x: Any) -> Any:
        return keras.ops.minimum(x, 1 - 1e-8)

    assert found(function) == [(1.0, 1 - 1e-8)]


def test_a_written_epsilon_is_read_off_its_line() -> None:
    def function(s: Any, x: Any) -> Any:
        return x / (x + 1e-8)

    assert found(function) == [(0.0, 1e-8)]


def test_a_value_below_the_smallest_of_bfloat16_vanishes_there() -> None:
    # The smallest subnormal of bfloat16 is 9.2e-41.
    assert found(lambda s, x: x + 1e-42, "mixed_bfloat16") == [(0.0, 1e-42)]


def test_one_less_than_half_a_step_rounds_to_one_in_bfloat16() -> None:
    # Below 1 the steps are 2**-8 = 0.0039 wide.
    assert found(lambda s, x: keras.ops.minimum(x, 0.999), "mixed_bfloat16") == [(1.0, 0.999)]


KEPT: dict[str, Callable[[Any, Any], Any]] = {
    "a true zero": lambda s, x: keras.ops.maximum(x, 0.0),
    "a true one": lambda s, x: 1.0 - x,
    "a whole one": lambda s, x: 1 - x,
    "a zero by attribute": lambda s, x: keras.ops.maximum(x, s.zero),
    "zeros": lambda s, x: x + keras.ops.zeros((4,), x.dtype),
    "ones": lambda s, x: x * keras.ops.ones((4,), x.dtype),
    "a true infinity": lambda s, x: keras.ops.minimum(x, float("inf")),
    "an infinite mask": lambda s, x: keras.ops.where(x > 9, -np.inf, x),
    "an array of zeros and ones": lambda s, x: x * np.array([0, 1, 0, 1], "float32"),
    "a rounded number": lambda s, x: x * 0.1,
    "the largest": lambda s, x: keras.ops.minimum(x, 65504.0),
    "a subnormal": lambda s, x: x + 1e-7,
    "a small mask": lambda s, x: x + -1e4,
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_meant_is_no_changed_constant(case: str) -> None:
    assert found(KEPT[case]) == []


@pytest.mark.parametrize("case", ["epsilon", "mask", "almost one by attribute"])
def test_float32_changes_nothing(case: str) -> None:
    assert found(CHANGED[case][0], "float32") == []


@pytest.mark.parametrize("case", ["epsilon", "mask", "epsilon by attribute"])
def test_bfloat16_keeps_what_float16_loses(case: str) -> None:
    assert found(CHANGED[case][0], "mixed_bfloat16") == []


def test_two_constants_on_one_line_are_told_apart() -> None:
    constants = found(lambda s, x: keras.ops.maximum(x, 0.0) + 1e-8)
    assert constants == [(0.0, 1e-8)]


def test_two_changed_constants_are_both_found() -> None:
    constants = found(lambda s, x: (x + s.eps) * (x + s.options["mask"]))
    np.testing.assert_allclose(sorted(constants), [(-INF, -1e9), (0.0, 1e-8)], rtol=1e-6)


def test_a_constant_in_a_loop_is_found() -> None:
    def function(s: Any, x: Any) -> Any:
        return keras.ops.fori_loop(0, 3, lambda _, y: y + 1e-8, x)

    assert found(function) == [(0.0, 1e-8)]


def test_a_constant_in_keras_code_is_not_the_users() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    layers = [L.LayerNormalization(), L.Softmax(), L.BatchNormalization(), L.Dense(2, "gelu")]
    (trace,) = trace_modes(keras.Sequential([keras.Input((4,)), *layers]), modes=[False])
    assert trace.constants == ()


def two_layers(first: Any, second: Any, *between: Any) -> list[tuple[float, float]]:
    """What is found in a float16 model of two layers."""
    model = keras.Sequential([keras.Input((4,)), first, *between, second])
    (trace,) = trace_modes(model, modes=[False])
    return [(one.value, one.intended) for one in trace.constants]


def test_two_layers_of_one_class_tell_their_own_numbers() -> None:
    keras.config.set_dtype_policy("mixed_float16")

    def function(s: Any, x: Any) -> Any:
        return x / (x + s.eps)

    first, second = Runs(function), Runs(function)
    second.eps = 1e-9
    assert two_layers(first, second) == [(0.0, 1e-8), (0.0, 1e-9)]


def test_two_layers_of_one_class_tell_what_their_own_functions_hold() -> None:
    keras.config.set_dtype_policy("mixed_float16")

    def adds(s: Any, x: Any) -> Any:
        return x + s.eps

    def clips(s: Any, x: Any) -> Any:
        return keras.ops.minimum(x, s.eps)

    assert two_layers(Runs(adds), Runs(clips)) == [(0.0, 1e-8), (0.0, 1e-8)]


def test_two_layers_of_one_class_tell_what_follows_from_their_own_shapes() -> None:
    keras.config.set_dtype_policy("mixed_float16")

    def function(s: Any, x: Any) -> Any:
        return x + s.eps / x.shape[-1]

    constants = two_layers(Runs(function), Runs(function), L.Dense(8))
    np.testing.assert_allclose(constants, [(0.0, 2.5e-9), (0.0, 1.25e-9)], rtol=1e-6)


def test_a_finite_mask_is_found_behind_an_infinite_one() -> None:
    def function(s: Any, x: Any) -> Any:
        mask = tf.constant([-np.inf, -1e9, 0.0, 0.0], "float32")
        return x + tf.cast(mask, x.dtype)

    assert found(function) == [(-INF, -1e9)]


def test_true_is_not_the_number_one_on_a_line() -> None:
    def function(s: Any, x: Any) -> Any:
        return keras.ops.minimum(keras.ops.max(x, -1, keepdims=True), s.almost_one)

    np.testing.assert_allclose(found(function), [(1.0, 1 - 1e-6)], rtol=1e-9)


def test_an_expression_over_several_lines_is_read_whole() -> None:
    def function(s: Any, x: Any) -> Any:
        # fmt: off
        return keras.ops.minimum(x, (1
            - 1e-8))
        # fmt: on

    assert found(function) == [(1.0, 1 - 1e-8)]
