"""Which batches are searched on, and which are held out: counted by hand."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.comparison.planning.running.samples import (
    common_specs,
    nudged,
    split_batches,
)
from tf_amp_kit.data import Batch, num_samples
from tf_amp_kit.errors import InputsError


def numbers(count: int, width: int = 1, start: int = 0) -> Any:
    """Rows that tell where they come from."""
    return np.repeat(np.arange(start, start + count, dtype=np.float32)[:, None], width, axis=1)


def sizes(batches: list[Batch]) -> list[int]:
    return [num_samples(one) for one in batches]


def firsts(batches: list[Batch]) -> list[int]:
    """The first sample of each batch."""
    return [int(one.x[0, 0]) for one in batches]


@pytest.mark.parametrize(
    ("count", "searched", "held_out"),
    [
        (1, [1], []),
        (32, [32], []),
        (40, [32], [8]),
        (64, [32], [32]),
        (65, [32, 32], [1]),
        (128, [32, 32], [32, 32]),
        (200, [32, 32], [32, 32]),
    ],
)
def test_arrays_give_two_batches_of_32_to_search_on_and_the_next_two_to_check_on(
    count, searched, held_out
):
    found = split_batches((numbers(count),), None, 32)
    assert [sizes(one) for one in found] == [searched, held_out]


def test_no_sample_is_in_both_and_none_is_left_out_in_between():
    search, held_out = split_batches((numbers(200),), None, 32)
    assert [*firsts(search), *firsts(held_out)] == [0, 32, 64, 96]


def test_of_few_batches_the_later_ones_are_held_out():
    search, held_out = split_batches((numbers(50),), None, 10)
    assert (firsts(search), firsts(held_out)) == ([0, 10, 20], [30, 40])


def test_one_batch_of_all_samples_leaves_none():
    assert [sizes(one) for one in split_batches((numbers(100),), None, None)] == [[100], []]


def test_targets_and_weights_stay_with_their_samples():
    data = numbers(40), numbers(40, 2), np.arange(40, dtype=np.float32)
    for (batch,) in split_batches(data, None, 32):
        np.testing.assert_array_equal(batch.x[:, 0], batch.y[:, 1])
        np.testing.assert_array_equal(batch.x[:, 0], batch.sample_weight)


def test_batches_of_a_dataset_are_taken_whole_until_there_are_64_samples():
    data = tf.data.Dataset.from_tensor_slices(numbers(500)).batch(48)
    search, held_out = split_batches(data, None, None)
    assert (firsts(search), firsts(held_out)) == ([0, 48], [96, 144])


def test_an_endless_dataset_is_read_no_further_than_needed():
    read = []

    def batches() -> Any:
        for index in range(10**9):
            read.append(index)
            yield numbers(40, start=40 * index)

    data = tf.data.Dataset.from_generator(
        batches, output_signature=tf.TensorSpec((None, 1), tf.float32)
    )
    search, held_out = split_batches(data, None, None)
    assert (firsts(search), firsts(held_out)) == ([0, 40], [80, 120])
    assert len(read) < 20


def test_a_dataset_of_one_batch_leaves_none():
    data = tf.data.Dataset.from_tensors(numbers(100))
    assert [sizes(one) for one in split_batches(data, None, None)] == [[100], []]


class Numbers(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return numbers(32, start=32 * index), numbers(32)


def test_a_pydataset_is_split_as_well():
    search, held_out = split_batches(Numbers(), None, None)
    assert (firsts(search), firsts(held_out)) == ([0, 32], [64, 96])


@pytest.mark.parametrize(
    "validation",
    [
        numbers(100, start=1000),
        (numbers(100, start=1000),),
        tf.data.Dataset.from_tensor_slices(numbers(100, start=1000)).batch(32),
    ],
    ids=["array", "tuple", "dataset"],
)
def test_validation_data_are_held_out_and_all_batches_searched_on(validation):
    search, held_out = split_batches((numbers(64),), validation, 32)
    assert (firsts(search), firsts(held_out)) == ([0, 32], [1000, 1032])


@pytest.mark.parametrize("nothing", [(), []])
def test_empty_validation_data_are_refused(nothing):
    with pytest.raises(InputsError, match=re.escape(f"Received: validation={nothing!r}.")):
        split_batches((numbers(8),), nothing, 32)


def test_arrays_of_no_samples_are_refused():
    with pytest.raises(InputsError, match=r"Expected at least one|hold no"):
        split_batches((numbers(0),), None, 32)


def test_a_batch_without_samples_is_refused():
    data = tf.data.Dataset.from_tensors(numbers(0))
    with pytest.raises(InputsError, match="A batch holds no samples"):
        split_batches(data, None, None)


def test_samples_are_counted_in_nested_inputs():
    assert num_samples(Batch({"a": [tf.zeros((5, 2))], "b": tf.zeros((5,))})) == 5


# --- one description for all ---


def net(*shape: int | None) -> keras.Model:
    return keras.Sequential([keras.Input(shape), layers.Dense(2)])


def test_data_of_one_form_keep_their_description():
    x = numbers(40, 3)
    specs = common_specs(net(3), (x,), [Batch(tf.constant(x[:32])), Batch(tf.constant(x[32:]))])
    assert specs == (tf.TensorSpec((None, 3), tf.float32), None, None)


def test_dimensions_in_which_batches_differ_are_open():
    batches = [Batch(tf.zeros((4, length, 2))) for length in (3, 5)]
    (x, *_) = common_specs(net(None, 2), (np.zeros((4, 3, 2), np.float32),), batches)
    assert x == tf.TensorSpec((None, None, 2), tf.float32)


def test_a_batch_that_does_not_fit_the_model_is_refused_before_anything_runs():
    batches = [Batch(tf.zeros((4, width))) for width in (3, 5)]
    with pytest.raises(InputsError):
        common_specs(net(3), (np.zeros((4, 3), np.float32),), batches)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (Batch(tf.zeros((4, 3))), "x"),
        (Batch(tf.zeros((4, 3)), tf.zeros((4, 1)), tf.zeros(4)), "x, y, sample_weight"),
        (Batch({"a": tf.zeros((4, 3))}, tf.zeros((4, 1))), "x/a, y"),
    ],
)
def test_validation_data_of_another_form_are_refused_with_both_forms(other, names):
    data = numbers(4, 3), numbers(4)
    message = f"Expected x, y. Received: {names}."
    with pytest.raises(InputsError, match=re.escape(message)):
        common_specs(net(3), data, [Batch(*map(tf.constant, data)), other])


# --- moved by a rounding ---


def test_floats_move_by_one_rounding_up_and_down_and_others_stay():
    batch = Batch({"a": tf.ones((2, 2)), "b": tf.constant([3, 4])}, tf.ones((2, 1)))
    moved = nudged(batch)
    step = 2.0**-23
    np.testing.assert_array_equal(moved.x["a"], [[1 - step, 1 + step], [1 - step, 1 + step]])
    np.testing.assert_array_equal(moved.x["b"], [3, 4])
    np.testing.assert_array_equal(moved.y, batch.y)
