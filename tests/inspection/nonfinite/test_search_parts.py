"""The parts of the search, on single graphs: what was run, what was bad, what it was made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.data import Batch, batch_specs
from tf_amp_kit.inspection.nonfinite.bodies import Bodies, inputs_of_body
from tf_amp_kit.inspection.nonfinite.health import Health, bad_ones, health_of, is_checked
from tf_amp_kit.inspection.nonfinite.levels import StepChecker
from tf_amp_kit.inspection.nonfinite.search import Search
from tf_amp_kit.inspection.nonfinite.sources import Sources
from tf_amp_kit.tracing.bodies import CALLING_TYPES
from tf_amp_kit.tracing.step_graph import trace_step

from .small import ONES, chain, dense, fault


class Run:
    """One run of a float32 model with one function in it, at loss scale 1."""

    def __init__(self, function: Any, x: Any = ONES) -> None:
        model = chain(fault(function), dense())
        self.step = trace_step(model, batch_specs((ONES, ONES)))
        self.checker = StepChecker(self.step)
        self.batch = Batch(tf.constant(x, tf.float32), tf.constant(ONES))
        self.level = self.checker.level(self.batch, 1.0, forward_only=False)
        self.bodies = Bodies(self.step)

    def operation(self, kind: str) -> Any:
        """The first one of a type, outside of bodies."""
        return next(op for op in self.level.operations if op.type == kind)

    def bodies_of(self, kind: str) -> list[Any]:
        op = self.operation(kind)
        return self.bodies.runs(op, self.level.values(op.inputs))

    def origin(self, deliberate: bool = False) -> Any:
        ends = [key for key in self.checker.ends if key in self.level.bad]
        return Search(self.step, lambda op: deliberate).origin(self.level, ends)


def loop(x):
    return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x))[1]


def loop_without_turns(x):
    return tf.while_loop(lambda i, a: i < 0, lambda i, a: (i + 1, a * 2), (0, x))[1]


def test_a_loop_is_run_once_for_each_turn():
    assert len(Run(loop).bodies_of("StatelessWhile")) == 3


def test_each_turn_of_a_loop_goes_on_from_the_one_before():
    runs = Run(loop).bodies_of("StatelessWhile")
    products = [op for op in runs[0].operations if op.type == "Mul"]
    values = [run.values(products[0].outputs)[0][0, 0] for run in runs]
    assert values == [2.0, 4.0, 8.0]


def test_a_loop_that_never_turns_has_no_runs():
    assert Run(loop_without_turns).bodies_of("StatelessWhile") == []


def branches(number):
    def function(x):
        choices = [lambda: x * 2, lambda: x * 3, lambda: x * 5]
        return tf.switch_case(tf.cast(number + tf.reduce_sum(x) * 0, tf.int32), choices)

    return function


# TensorFlow takes the last branch for every number that has none.
@pytest.mark.parametrize(
    ("number", "factor"), [(0, 2), (1, 3), (2, 5), (3, 5), (100, 5), (-1, 5), (-100, 5)]
)
def test_the_branch_of_a_number_is_run(number, factor):
    run = Run(branches(number))
    (body,) = run.bodies_of("StatelessCase")
    np.testing.assert_array_equal(body.outputs[0], ONES * factor)


@pytest.mark.parametrize(("sign", "factor"), [(1, 2), (-1, 3)])
def test_the_branch_of_a_condition_is_run(sign, factor):
    def function(x):
        return tf.cond(tf.reduce_sum(x) * sign > 0, lambda: x * 2, lambda: x * 3)

    (body,) = Run(function).bodies_of("StatelessIf")
    np.testing.assert_array_equal(body.outputs[0], ONES * factor)


def test_a_branch_gets_all_inputs_but_the_choice():
    op = Run(branches(1)).operation("StatelessCase")
    assert inputs_of_body(op) == op.inputs[1:]


def test_a_loop_gets_all_inputs():
    op = Run(loop).operation("StatelessWhile")
    assert inputs_of_body(op) == op.inputs


def test_operations_that_call_bodies_are_these():
    assert {"While", "StatelessWhile", "If", "Case", "PartitionedCall"} <= CALLING_TYPES


def test_a_run_of_a_body_computes_its_tensors_again():
    (run, *_) = Run(loop).bodies_of("StatelessWhile")
    (product,) = [op for op in run.operations if op.type == "Mul"]
    (value,) = run.values(product.outputs)
    np.testing.assert_array_equal(value, ONES * 2)


def test_a_body_tells_which_of_its_inputs_are_bad():
    run = Run(loop, ONES * np.nan).bodies_of("StatelessWhile")[0]
    assert any(key in run.bad for key in run.inputs)


def test_of_a_clean_run_nothing_is_bad():
    assert Run(loop).level.bad == {}


def sources_of(function, x=ONES):
    run = Run(function, x)
    ends = [key for key in run.checker.ends if key in run.level.bad]
    return run, Sources(run.step).reaching(run.level, ends)


def test_a_bad_tensor_that_goes_nowhere_reaches_nothing():
    def function(x):
        tf.math.log(-x)
        return x

    assert sources_of(function)[1] == {}


def test_a_selection_is_made_of_the_tensor_that_it_took():
    def function(x):
        return tf.where(x > 0, tf.exp(x * 1000), tf.math.log(-x))

    run, reached = sources_of(function)
    (taken,) = reached[run.operation("SelectV2").outputs[0]]
    assert taken == run.operation("Exp").outputs[0]


def test_a_selection_of_both_is_made_of_both():
    def function(x):
        return tf.where(tf.range(4) < 2, tf.exp(x * 1000), tf.math.log(-x))

    run, reached = sources_of(function)
    assert len(reached[run.operation("SelectV2").outputs[0]]) == 2


def test_a_variable_that_is_read_is_made_of_what_was_written_to_it():
    kept = tf.Variable(1.0)

    def function(x):
        kept.assign(tf.math.log(-tf.reduce_sum(x)))
        return x * kept

    assert Run(function).origin().operation.type == "Log"


def test_a_list_is_followed_through():
    def function(x):
        array = tf.TensorArray(tf.float32, 1, element_shape=(None, 4))
        return array.write(0, tf.math.log(-x)).read(0)

    assert Run(function).origin().operation.type == "Log"


def test_a_written_infinity_is_an_origin_only_if_it_is_not_meant():
    def function(x):
        return x + tf.constant(np.inf)

    run = Run(function)
    assert run.origin(deliberate=False).operation.type == "Const"


def test_where_nothing_bad_reaches_an_end_there_is_no_origin():
    assert Run(loop).origin() is None


def test_a_nan_that_a_meant_infinity_makes_is_an_origin():
    def function(x):
        return x + tf.constant(np.inf) - tf.constant(np.inf)

    assert Run(function).origin(deliberate=True).operation.type == "Sub"


# Counting.


def counted(*values, dtype="float32"):
    tensors = [tf.constant(value, dtype) for value in values]
    return bad_ones(range(len(values)), health_of(tensors))


def test_nans_and_infinities_of_both_signs_are_counted():
    values = [np.nan, np.nan, np.inf, -np.inf, 0.0, 1.0]
    assert counted(values) == {0: Health(num_elements=6, num_infinite=2, num_nan=2)}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_all_floats_are_counted(dtype):
    assert counted([np.nan, 1.0], dtype=dtype) == {0: Health(2, 0, 1)}


def test_an_eight_bit_float_is_counted():
    tensor = tf.cast(tf.constant([np.nan, 1.0]), "float8_e5m2")
    assert bad_ones([0], health_of([tensor])) == {0: Health(2, 0, 1)}


def test_finite_tensors_are_left_out():
    assert counted([1.0], [np.inf], [65504.0]) == {1: Health(1, 1, 0)}


def test_an_empty_tensor_is_finite():
    assert counted(np.zeros((0, 3))) == {}


def test_of_no_tensors_none_is_bad():
    assert bad_ones([], health_of([])) == {}


def test_a_complex_number_with_a_nan_is_counted():
    tensor = tf.complex(tf.constant([np.nan, 1.0]), tf.constant([0.0, 0.0]))
    assert 0 in bad_ones([0], health_of([tensor]))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float16", True), ("complex64", True), ("int32", False), ("bool", False), ("string", False)],
)
def test_only_floats_and_complex_numbers_can_hold_nan(dtype, expected):
    assert is_checked(tf.TensorSpec((), dtype)) is expected
