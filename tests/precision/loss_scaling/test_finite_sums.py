"""Slices of one row are added up, so their sum must be finite too."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tensorflow as tf

from tests.precision.loss_scaling.helpers import (
    HUGE,
    INF,
    NAN,
    all_finite,
    constant,
    in_each_mode,
    in_mode,
)

ROWS = 5


def slices(values: Any, rows: list[int], dtype: str = "float32") -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.constant(values, dtype), tf.constant(rows), tf.constant([ROWS, 2]))


def verdict(mode: str, *tensors: Any) -> bool:
    return bool(in_mode(lambda *tensors: all_finite(list(tensors)), mode)(*tensors))


@in_each_mode
def test_a_bad_element_of_a_slice_is_seen(mode: str) -> None:
    function = in_mode(lambda *tensors: all_finite(list(tensors)), mode)
    for position, bad in itertools.product(range(3), (INF, -INF, NAN)):
        values = [[1.0, 1.0] for _ in range(3)]
        values[position][1] = bad
        assert not function(constant(1.0), slices(values, [4, 0, 4]))


@in_each_mode
def test_rows_of_a_slice_that_add_up_to_infinity_are_not_finite(mode: str) -> None:
    function = in_mode(lambda one: all_finite([one]), mode)
    twice = [[HUGE, 1.0], [HUGE, 1.0]]
    assert function(slices(twice, [0, 1]))
    assert not function(slices(twice, [1, 1]))
    assert not function(slices([[-HUGE, 1.0], [-HUGE, 1.0]], [3, 3]))
    assert function(slices([[HUGE, 1.0], [-HUGE, 1.0]], [3, 3]))


@in_each_mode
def test_infinities_of_one_row_that_cancel_are_seen(mode: str) -> None:
    assert not verdict(mode, slices([[INF, 1.0], [-INF, 1.0]], [2, 2]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_slices_of_any_precision_are_looked_at(dtype: str) -> None:
    good = slices([[1.0, 2.0], [3.0, 4.0]], [0, 0], dtype)
    bad = slices([[1.0, 2.0], [3.0, NAN]], [0, 1], dtype)
    assert verdict("graph", good)
    assert not verdict("graph", bad)


@pytest.mark.parametrize("other", [1.0, HUGE])
def test_rows_of_a_float16_slice_add_up_in_float32(other: float) -> None:
    # Wherever they are added up, they were widened before: to divide them.
    rows = slices([[6e4, 0.0], [6e4, 0.0]], [1, 1], "float16")
    assert verdict("eager", rows, constant(other, other))


def test_an_empty_slice_is_finite() -> None:
    empty = tf.IndexedSlices(tf.zeros((0, 2)), tf.zeros((0,), tf.int32), tf.constant([ROWS, 2]))
    assert verdict("eager", empty)


def test_a_large_embedding_is_not_told_to_take_memory() -> None:
    # TensorFlow warns from 1e8 elements on, while it traces; no step is run here.
    @tf.function
    def check(values: Any) -> Any:
        shape = tf.constant([2_000_000, 64])
        return all_finite([tf.IndexedSlices(values, tf.constant([0]), shape)])

    assert check(tf.ones((1, 64)))
