"""Every accepted form of training data, read as batches of tensors."""

from __future__ import annotations

import itertools
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.data import (
    Batch,
    as_data,
    batches_of,
    count_batches,
    num_samples,
    widened_specs,
)
from tf_amp_kit.errors import InputsError

X = np.arange(15, dtype=np.float32).reshape(5, 3)
Y = np.arange(5, dtype=np.int64)
RAGGED = tf.ragged.constant([[1.0, 2.0], [3.0], [], [4.0], [5.0, 6.0]])
SPARSE = tf.sparse.from_dense(X)


class Batches(keras.utils.PyDataset):
    """Batches of two, and of what is left."""

    def __init__(self, num_batches: int | None = 3) -> None:
        super().__init__()
        self._num_batches = num_batches

    @property
    def num_batches(self) -> int | None:
        return self._num_batches

    def __getitem__(self, index: int) -> Any:
        start = 2 * (index % 3)
        return X[start : start + 2], Y[start : start + 2]


def dataset(size: int = 2) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)


FORMS: dict[str, Any] = {
    "arrays": (X, Y),
    "float64": (X.astype("float64"), Y),
    "tensors": (tf.constant(X), tf.constant(Y)),
    "dataset": dataset(),
    "PyDataset": Batches(),
}


def values(data: Any, batch_size: int | None = 2) -> list[Any]:
    return [
        tuple(None if one is None else one.numpy().tolist() for one in batch)
        for batch in batches_of(data, batch_size)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_batches(form: str) -> None:
    starts = (0, 2, 4)
    wanted = [(X[one : one + 2].tolist(), Y[one : one + 2].tolist(), None) for one in starts]
    assert values(FORMS[form]) == wanted


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_tensors_of_the_same_dtypes(form: str) -> None:
    batch = next(batches_of(FORMS[form], 2))
    assert (batch.x.dtype, batch.y.dtype) == (tf.float32, tf.int64)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_tells_how_many_batches_it_has(form: str) -> None:
    assert count_batches(FORMS[form], 2) == 3


@pytest.mark.parametrize(
    ("size", "lengths"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5]), (9, [5]), (None, [5])]
)
def test_arrays_are_cut_into_batches(size: int | None, lengths: list[int]) -> None:
    assert [len(batch.x) for batch in batches_of((X, Y), size)] == lengths


@pytest.mark.parametrize(("size", "count"), [(1, 5), (2, 3), (5, 1), (9, 1), (None, 1)])
def test_the_batches_of_arrays_are_counted(size: int | None, count: int) -> None:
    assert count_batches((X, Y), size) == count


def test_lists_of_numbers_are_arrays() -> None:
    assert values(([[1.0, 2.0], [3.0, 4.0]], [1, 0]), 1) == [
        ([[1.0, 2.0]], [1], None),
        ([[3.0, 4.0]], [0], None),
    ]


def test_a_structure_is_kept_in_every_batch() -> None:
    data = ({"a": X, "b": [X, Y]}, (Y, Y), Y)
    batch = list(batches_of(data, 2))[1]
    found = tf.nest.map_structure(lambda one: one.numpy().tolist(), tuple(batch))
    x, y = X[2:4].tolist(), Y[2:4].tolist()
    assert found == ({"a": x, "b": [x, y]}, (y, y), y)


def test_structures_of_a_pydataset_are_kept() -> None:
    class Dictionaries(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> Any:
            return {"a": X, "b": Y}, Y

    (batch,) = batches_of(Dictionaries(), None)
    assert {key: one.shape.as_list() for key, one in batch.x.items()} == {"a": [5, 3], "b": [5]}


def test_ragged_rows_are_cut() -> None:
    found = [batch.x.to_list() for batch in batches_of((RAGGED, Y), 2)]
    assert found == [[[1.0, 2.0], [3.0]], [[], [4.0]], [[5.0, 6.0]]]


def test_sparse_rows_are_cut() -> None:
    found = [tf.sparse.to_dense(batch.x).numpy().tolist() for batch in batches_of((SPARSE, Y), 2)]
    assert found == [X[0:2].tolist(), X[2:4].tolist(), X[4:5].tolist()]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool", "float16", "float32"])
def test_other_dtypes_than_float64_are_kept(dtype: str) -> None:
    (batch,) = batches_of((X.astype(dtype), Y), None)
    assert batch.x.dtype == dtype


@pytest.mark.parametrize(
    ("value", "wanted"), [(0.1, 13421773 * 2.0**-27), (-1e300, -np.inf), (1e-300, 0.0)]
)
def test_float64_is_rounded_to_float32(value: float, wanted: float) -> None:
    (batch,) = batches_of((np.array([[value]]), np.zeros(1)), None)
    assert batch.x.numpy().tolist() == [[wanted]]


@pytest.mark.parametrize("size", [0, -1, 1.5, "32", True])
def test_a_batch_size_that_holds_nothing_is_refused(size: Any) -> None:
    message = (
        "Expected a whole number of samples from 1 up, or None for all of them. "
        f"Received: batch_size={size!r}."
    )
    with pytest.raises(InputsError, match=f"^{re.escape(message)}$"):
        list(batches_of((np.ones((3, 2)), np.ones(3)), size))


def test_data_without_a_batch_are_refused() -> None:
    empty = tf.data.Dataset.from_tensor_slices((np.ones((3, 2)), np.ones(3))).batch(2).take(0)
    with pytest.raises(InputsError, match=re.escape("The data hold no batch.")):
        list(batches_of(empty, 2))


def test_one_sample_is_a_batch() -> None:
    assert values((X[:1], Y[:1]), 32) == [(X[:1].tolist(), [0], None)]


def test_no_samples_are_one_empty_batch() -> None:
    assert values((X[:0], Y[:0]), 2) == [([], [], None)]


def test_inputs_alone_have_no_targets() -> None:
    assert [(one.y, one.sample_weight) for one in batches_of((X,), None)] == [(None, None)]


def test_sample_weights_are_cut_too() -> None:
    found = [batch.sample_weight.numpy().tolist() for batch in batches_of((X, Y, Y), 3)]
    assert found == [[0, 1, 2], [3, 4]]


def test_an_endless_dataset_goes_on() -> None:
    found = itertools.islice(batches_of(dataset().repeat(), 2), 7)
    assert [batch.y.numpy()[0] for batch in found] == [0, 2, 4, 0, 2, 4, 0]


def test_an_endless_pydataset_goes_on() -> None:
    found = itertools.islice(batches_of(Batches(None), 2), 7)
    assert [batch.y.numpy()[0] for batch in found] == [0, 2, 4, 0, 2, 4, 0]


@pytest.mark.parametrize("data", [dataset().repeat(), Batches(None)], ids=["dataset", "PyDataset"])
def test_endless_data_have_no_count(data: Any) -> None:
    assert count_batches(data, 2) is None


def test_a_generator_of_unknown_length_has_no_count() -> None:
    data = dataset().filter(lambda x, y: True)
    assert count_batches(data, 2) is None


def test_later_batches_are_not_drawn_before_they_are_asked_for() -> None:
    drawn = []

    class Counted(Batches):
        def __getitem__(self, index: int) -> Any:
            drawn.append(index)
            return super().__getitem__(index)

    next(batches_of(Counted(), 2))
    assert 1 not in drawn


def test_different_lengths_are_refused() -> None:
    message = re.escape("need the same length. Received: lengths [5, 4].")
    with pytest.raises(InputsError, match=message):
        next(batches_of((X, Y[:4]), 2))


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [
        (tf.TensorSpec((None, 3)), "TensorSpec"),
        (keras.KerasTensor((None, 3)), "KerasTensor"),
        ((None, 3), "tuple"),
        (tf.TensorShape((None, 3)), "TensorShape"),
    ],
)
def test_specs_instead_of_values_are_refused(leaf: Any, kind: str) -> None:
    message = re.escape(
        f"A run needs values. Expected arrays, tensors or a dataset. Received: {kind}."
    )
    with pytest.raises(InputsError, match=message):
        next(batches_of((leaf, Y), 2))


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (("x",), ("x",)),
        (("x", "y"), ("x", "y")),
        (("x", "y", "w"), ("x", "y", "w")),
        (("x", None, "w"), ("x", None, "w")),
        ((("x", "y"),), ("x", "y")),
        ((["x", "y"],), (["x", "y"],)),
    ],
)
def test_inputs_and_targets_are_joined(given: Any, joined: Any) -> None:
    assert as_data(*given) == joined


@pytest.mark.parametrize("data", [dataset(), Batches()], ids=["dataset", "PyDataset"])
def test_a_dataset_stays_as_it_is(data: Any) -> None:
    assert as_data(data) is data


@pytest.mark.parametrize(("y", "weight", "name"), [(Y, None, "y"), (None, Y, "sample_weight")])
def test_targets_beside_a_dataset_are_refused(y: Any, weight: Any, name: str) -> None:
    message = re.escape(f"Received: a Batches with {name}.")
    with pytest.raises(InputsError, match=message):
        as_data(Batches(), y, weight)


def specs(*shapes: Any, dtype: Any = tf.float32) -> list[Any]:
    return [tf.TensorSpec(shape, dtype) for shape in shapes]


def test_specs_that_fit_stay_the_same() -> None:
    given = tuple(specs((None, 3), (None,), (None,)))
    assert widened_specs(given, Batch(tf.ones((2, 3)), tf.ones(2), tf.ones(2))) == given


@pytest.mark.parametrize(
    ("shape", "value", "wider"),
    [
        ((2, 3), (1, 3), [None, 3]),
        ((None, 3), (2, 4), [None, None]),
        ((None, 3, 5), (2, 3, 6), [None, 3, None]),
    ],
)
def test_only_dimensions_that_differ_are_opened(shape: Any, value: Any, wider: Any) -> None:
    (found,) = widened_specs(specs(shape), [tf.ones(value)])
    assert found.shape.as_list() == wider


def test_structures_are_widened_leaf_by_leaf() -> None:
    given = ({"a": specs((2, 3))[0], "b": specs((2,))}, None, None)
    found = widened_specs(given, Batch({"a": tf.ones((1, 3)), "b": [tf.ones(2)]}))
    assert found == ({"a": specs((None, 3))[0], "b": specs((2,))}, None, None)


def test_ragged_specs_are_widened() -> None:
    spec = tf.RaggedTensorSpec([2, None], tf.float32, ragged_rank=1)
    (found,) = widened_specs([spec], [RAGGED])
    assert (type(found).__name__, found.shape.as_list()) == ("RaggedTensorSpec", [None, None])


def test_sparse_specs_are_widened() -> None:
    (found,) = widened_specs([tf.SparseTensorSpec([5, 4], tf.float32)], [SPARSE])
    assert (type(found).__name__, found.shape.as_list()) == ("SparseTensorSpec", [5, None])


# ------------------------------------------------------------------------------- shuffled


def shuffled(data: Any, size: int | None, seed: Any) -> list[Any]:
    return list(batches_of(data, size, shuffle_seed=seed))


@pytest.mark.parametrize("seed", [0, 7, (3, 1)])
@pytest.mark.parametrize("size", [1, 2, 5, None])
def test_shuffled_samples_come_in_the_order_that_numpy_draws(size: int | None, seed: Any) -> None:
    rows = np.concatenate([batch.x.numpy() for batch in shuffled((X, Y), size, seed)])
    np.testing.assert_array_equal(rows, X[np.random.default_rng(seed).permutation(5)])


def test_shuffled_samples_keep_their_targets_and_weights() -> None:
    weight = np.arange(5, dtype="float32") * 10
    batches = shuffled((np.arange(5), {"a": np.arange(5)}, weight), 2, 1)
    found = [(b.x.numpy().tolist(), b.y["a"].numpy().tolist()) for b in batches]
    weights = [(b.sample_weight.numpy() / 10).tolist() for b in batches]
    assert found == [(x, x) for x, _ in found] and weights == [x for x, _ in found]


def test_shuffled_batches_are_cut_like_others() -> None:
    assert [len(batch.x) for batch in shuffled((X, Y), 2, 0)] == [2, 2, 1]


@pytest.mark.parametrize(
    "form",
    [lambda: tf.constant(X), lambda: tf.ragged.constant(X.tolist()), lambda: X.tolist()],
)
def test_tensors_ragged_ones_and_lists_are_shuffled(form: Any) -> None:
    order = np.random.default_rng(4).permutation(5)
    (batch,) = shuffled((form(),), None, 4)
    rows = batch.x.to_tensor() if isinstance(batch.x, tf.RaggedTensor) else batch.x
    np.testing.assert_array_equal(rows.numpy(), X[order])


def test_sparse_samples_and_what_belongs_to_them_keep_their_order() -> None:
    sparse = tf.sparse.from_dense(X)
    batches = shuffled((sparse, Y), 2, 4)
    assert np.concatenate([batch.y.numpy() for batch in batches]).tolist() == Y.tolist()


def test_datasets_keep_the_order_that_they_have() -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2)
    assert [b.y.numpy().tolist() for b in shuffled(data, 2, 4)] == [
        b.y.numpy().tolist() for b in batches_of(data, 2)
    ]


def test_shuffling_draws_nothing_from_numpy_s_global_sequence() -> None:
    np.random.seed(0)
    expected = np.random.random()
    np.random.seed(0)
    shuffled((X, Y), 2, 4)
    assert np.random.random() == expected


@pytest.mark.parametrize(
    ("x", "count"),
    [
        (np.zeros((4, 3)), 4),
        (tf.zeros((0, 2)), 0),
        ({"a": [np.zeros((3, 1)), np.zeros((3, 2))]}, 3),
        (tf.ragged.constant([[1], [2, 3]]), 2),
    ],
)
def test_the_samples_of_a_batch_are_counted(x: Any, count: int) -> None:
    assert num_samples(Batch(x)) == count


def test_the_samples_of_a_sparse_batch_are_counted() -> None:
    assert num_samples(Batch(tf.sparse.from_dense(X))) == 5
