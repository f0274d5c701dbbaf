"""What is made of gradients: rows added up by hand, and casts taken back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.tracing.step_gradients import before_cast, summed_rows


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with tf.Graph().as_default():
        yield


def value(tensor: Any) -> Any:
    with tf.compat.v1.Session() as session:
        return session.run(tensor)


def rows(values: Any, indices: list[int], num_rows: int, dtype: Any = tf.float32) -> Any:
    shape = tf.constant([num_rows, len(values[0])])
    return tf.IndexedSlices(tf.constant(values, dtype), tf.constant(indices), shape)


@pytest.mark.parametrize("half", [tf.float16, tf.bfloat16])
def test_a_cast_down_is_taken_back(half):
    wide = tf.ones(2) * 3
    assert before_cast(tf.cast(wide, half)) is wide


def test_a_cast_up_stays():
    wide = tf.cast(tf.ones(2, tf.float16) * 3, tf.float32)
    assert before_cast(wide) is wide


def test_a_cast_between_the_halves_stays():
    other = tf.cast(tf.ones(2, tf.float16) * 3, tf.bfloat16)
    assert before_cast(other) is other


def test_what_is_no_cast_stays():
    narrow = tf.ones(2, tf.float16) * 3
    assert before_cast(narrow) is narrow


def test_only_the_last_cast_is_taken_back():
    half = tf.cast(tf.ones(2) * 3, tf.float16) * 2
    assert before_cast(half) is half


def test_no_gradient_stays_none():
    assert before_cast(None) is None


def test_the_cast_of_rows_is_taken_back():
    wide = tf.ones((2, 3)) * 3
    indices, shape = tf.constant([4, 1]), tf.constant([5, 3])
    found = before_cast(tf.IndexedSlices(tf.cast(wide, tf.float16), indices, shape))
    assert (found.values is wide, found.indices is indices, found.dense_shape is shape) == (
        True,
        True,
        True,
    )


def test_rows_of_one_index_are_added_up_and_the_others_are_zero():
    sparse = rows([[1, 2], [10, 20], [100, 200]], [2, 0, 2], 4)
    ((variable, dense),) = summed_rows([("w", sparse)])
    assert variable == "w"
    np.testing.assert_array_equal(value(dense), [[10, 20], [0, 0], [101, 202], [0, 0]])


def test_half_rows_are_added_up_in_float32():
    # In float16, 2048 + 1 is 2048.
    ((_, dense),) = summed_rows([("w", rows([[2048], [1], [1]], [0, 0, 0], 1, tf.float16))])
    np.testing.assert_array_equal(value(dense), [[2050]])


def test_no_rows_make_zeros():
    empty = tf.IndexedSlices(tf.zeros((0, 2)), tf.zeros(0, tf.int32), tf.constant([3, 2]))
    ((_, dense),) = summed_rows([("w", empty)])
    np.testing.assert_array_equal(value(dense), np.zeros((3, 2)))


def test_dense_gradients_and_missing_ones_stay():
    gradient = tf.ones((2, 2), tf.float16)
    assert summed_rows([("w", gradient), ("v", None)]) == [("w", gradient), ("v", None)]
