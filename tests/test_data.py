"""Every form of example inputs, read into specs and tiny batches."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.data import (
    batch_specs,
    input_specs,
    tiny_batch,
    with_batch_size,
    with_float_dtype,
)
from tf_amp_kit.errors import InputsError

X = np.arange(15, dtype="float32").reshape(5, 3)
Y = np.arange(5, dtype="int64")
SPEC = tf.TensorSpec((None, 3), tf.float32)
RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0], [4.0]])
SPARSE = tf.sparse.from_dense(X)


class Batches(keras.utils.PyDataset):
    def __init__(self, *batch: Any) -> None:
        super().__init__()
        self.batch = batch

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self.batch


def dataset(*parts: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(parts if len(parts) > 1 else parts[0]).batch(5)


FORMS: dict[str, Any] = {
    "array": X,
    "float64 array": X.astype("float64"),
    "tensor": tf.constant(X),
    "spec": SPEC,
    "shape": (None, 3),
    "tensor shape": tf.TensorShape((None, 3)),
    "keras tensor": keras.KerasTensor((None, 3)),
    "keras input": keras.Input((3,)),
    "lists of numbers": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    "dataset of x": dataset(X),
    "dataset of x and y": dataset(X, Y),
    "dataset with weights": dataset(X, Y, Y),
    "PyDataset": Batches(X, Y),
    "PyDataset of x": Batches(X),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_spec(form: str) -> None:
    spec = input_specs(FORMS[form])
    assert (spec.shape.as_list(), spec.dtype) == ([None, 3], tf.float32)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.zeros((2, 3), "int32"), tf.int32),
        (np.zeros((2, 3), "int64"), tf.int64),
        (np.zeros((2, 3), "uint8"), tf.uint8),
        (np.zeros((2, 3), "bool"), tf.bool),
        (np.zeros((2, 3), "float16"), tf.float16),
        (np.array([["a"], ["b"]]), tf.string),
        (np.array([["a"], [None]], dtype=object), tf.string),
        (tf.constant([["a"]]), tf.string),
        (tf.zeros((2, 3), tf.bfloat16), tf.bfloat16),
    ],
)
def test_dtypes_other_than_float64_are_kept(value: Any, dtype: tf.DType) -> None:
    assert input_specs(value).dtype == dtype


def test_a_structure_is_kept() -> None:
    specs = input_specs({"a": X, "b": [X, (X, (None, 7))]})
    assert specs["a"] == specs["b"][0] == specs["b"][1][0] == SPEC
    assert specs["b"][1][1].shape.as_list() == [None, 7]


def test_ragged_inputs_have_ragged_specs() -> None:
    spec = input_specs(RAGGED)
    assert (spec.shape.as_list(), spec.dtype, spec.ragged_rank) == ([None, None], tf.float32, 1)


def test_sparse_inputs_have_sparse_specs() -> None:
    spec = input_specs(SPARSE)
    assert isinstance(spec, tf.SparseTensorSpec) and spec.shape.as_list() == [None, 3]


@pytest.mark.parametrize("value", [np.float32(1), tf.constant(1.0), 3.0, "text"])
def test_a_scalar_is_refused(value: Any) -> None:
    with pytest.raises(InputsError, match=re.escape("The example inputs need a batch dimension.")):
        input_specs(value)


def test_unreadable_inputs_are_refused_with_their_type() -> None:
    with pytest.raises(InputsError, match=re.escape("Received: inputs of type object.")):
        input_specs(object())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((X, Y), ([None, 3], [None], None)),
        ((X, Y, Y), ([None, 3], [None], [None])),
        ((X,), ([None, 3], None, None)),
        ((X, None), ([None, 3], None, None)),
        (dataset(X, Y), ([None, 3], [None], None)),
        (dataset(X, Y, Y), ([None, 3], [None], [None])),
        (dataset(X), ([None, 3], None, None)),
        (Batches(X, Y), ([None, 3], [None], None)),
        ((SPEC, (None, 2)), ([None, 3], [None, 2], None)),
    ],
)
def test_training_data_are_taken_apart(data: Any, expected: tuple[Any, ...]) -> None:
    shapes = tuple(None if spec is None else spec.shape.as_list() for spec in batch_specs(data))
    assert shapes == expected


@pytest.mark.parametrize("data", [X, [X, Y], (None, 3), (X, Y, Y, Y)])
def test_what_is_no_training_data_is_refused(data: Any) -> None:
    with pytest.raises(InputsError, match=re.escape("Expected `(x, y)`")):
        batch_specs(data)


@pytest.mark.parametrize(
    "form", ["array", "tensor", "dataset of x", "dataset of x and y", "PyDataset"]
)
def test_a_tiny_batch_has_the_first_samples(form: str) -> None:
    batch = tiny_batch(FORMS[form], SPEC)
    np.testing.assert_array_equal(batch, X[:2])


@pytest.mark.parametrize("form", [None, SPEC, (None, 3), keras.KerasTensor((None, 3))])
def test_a_tiny_batch_without_data_is_of_ones(form: Any) -> None:
    np.testing.assert_array_equal(tiny_batch(form, SPEC), np.ones((2, 3)))


def test_a_tiny_batch_of_integers_without_data_is_of_zeros() -> None:
    batch = tiny_batch(None, tf.TensorSpec((None, 3), tf.int32))
    np.testing.assert_array_equal(batch, np.zeros((2, 3)))


def test_a_tiny_batch_of_strings_without_data_is_empty_text() -> None:
    batch = tiny_batch(None, tf.TensorSpec((None, 1), tf.string))
    assert batch.numpy().tolist() == [[b""], [b""]]


def test_unknown_dimensions_of_a_tiny_batch_are_filled() -> None:
    assert tiny_batch(None, tf.TensorSpec((None, None, 3), tf.float32)).shape == (2, 32, 3)


def test_a_tiny_batch_has_the_dtype_of_its_spec() -> None:
    assert tiny_batch(X.astype("float64"), SPEC).dtype == tf.float32


def test_a_tiny_batch_keeps_the_structure() -> None:
    inputs = {"a": X, "b": [Y]}
    batch = tiny_batch(inputs, input_specs(inputs))
    assert (batch["a"].shape, batch["b"][0].shape) == ((2, 3), (2,))


def test_a_tiny_ragged_batch_has_the_first_rows() -> None:
    assert tiny_batch(RAGGED, input_specs(RAGGED)).to_list() == [[1.0, 2.0], [3.0]]


def test_a_tiny_ragged_batch_can_be_made_up() -> None:
    batch = tiny_batch(None, tf.RaggedTensorSpec((None, None, 4), tf.float32, ragged_rank=1))
    assert (batch.shape[0], batch.shape[2]) == (2, 4)


def test_a_tiny_sparse_batch_has_the_first_rows() -> None:
    batch = tiny_batch(SPARSE, input_specs(SPARSE))
    np.testing.assert_array_equal(tf.sparse.to_dense(batch), X[:2])


def test_a_tiny_sparse_batch_can_be_made_up() -> None:
    batch = tiny_batch(None, tf.SparseTensorSpec((None, 3), tf.float32))
    assert batch.shape == (2, 3)


def test_a_smaller_example_is_taken_whole() -> None:
    assert tiny_batch(X[:1], SPEC).shape == (1, 3)


def test_the_batch_size_is_fixed_only_where_it_is_open() -> None:
    fixed = with_batch_size({"a": SPEC, "b": tf.TensorSpec((7, 3)), "c": tf.TensorSpec(())}, 2)
    assert [spec.shape.as_list() for spec in fixed.values()] == [[2, 3], [7, 3], []]


def test_only_floats_get_another_dtype() -> None:
    specs = with_float_dtype([SPEC, tf.TensorSpec((None,), tf.string)], "int32")
    assert [spec.dtype for spec in specs] == [tf.int32, tf.string]
