"""The batches of a run: the same for every precision."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.comparison.training.running.sources import Source, check_same, fingerprint
from tf_amp_kit.data import Batch
from tf_amp_kit.errors import InputsError

X = np.arange(10, dtype="float32").reshape(5, 2)
Y = np.arange(5)


class Sequence(keras.utils.PyDataset):
    def __init__(self, length: int | None = 3) -> None:
        super().__init__()
        self.length = length

    @property
    def num_batches(self) -> int | None:
        return self.length

    def __getitem__(self, index: int) -> Any:
        rows = slice(index % 3 * 2, index % 3 * 2 + 2)
        return X[rows], Y[rows]


def dataset(size: int = 2) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(size)


def targets(source: Source, seed: int, count: int) -> list[list[int]]:
    """The targets of the first batches: which samples they hold."""
    return [batch.y.numpy().tolist() for batch in itertools.islice(source.steps(seed), count)]


# --------------------------------------------------------------------------------- order


def test_arrays_are_shuffled_by_seed_and_epoch_as_numpy_does() -> None:
    orders = [np.random.default_rng((7, epoch)).permutation(5).tolist() for epoch in range(2)]
    cut = [order[start : start + 2] for order in orders for start in (0, 2, 4)]
    assert targets(Source((X, Y), 2), 7, 6) == cut


def test_an_epoch_of_arrays_has_each_sample_once() -> None:
    epoch = targets(Source((X, Y), 2), 0, 3)
    assert sorted(itertools.chain(*epoch)) == [0, 1, 2, 3, 4]


def test_inputs_and_targets_stay_together() -> None:
    batches = itertools.islice(Source((X, Y), 2).steps(3), 6)
    assert all((batch.x.numpy()[:, 0] == 2 * batch.y.numpy()).all() for batch in batches)


def test_another_seed_has_another_order() -> None:
    source = Source((X, Y), 5)
    assert targets(source, 0, 4) != targets(source, 1, 4)


def test_the_same_seed_has_the_same_order() -> None:
    source = Source((X, Y), 2)
    assert targets(source, 5, 9) == targets(source, 5, 9)


def test_the_order_does_not_depend_on_what_else_is_drawn() -> None:
    source = Source((X, Y), 2)
    before = targets(source, 5, 9)
    np.random.seed(3)
    keras.utils.set_random_seed(4)
    assert targets(source, 5, 9) == before


def test_no_batch_size_is_all_of_the_samples() -> None:
    (batch,) = targets(Source((X, Y), None), 0, 1)
    assert sorted(batch) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("make", [dataset, Sequence])
def test_datasets_keep_their_order_epoch_after_epoch(make: Callable[[], Any]) -> None:
    assert targets(Source(make(), 99), 7, 4) == [[0, 1], [2, 3], [4], [0, 1]]


def test_a_function_is_called_for_every_run() -> None:
    calls = []

    def data() -> Any:
        calls.append(1)
        return X, Y

    source = Source(data, 2)
    targets(source, 0, 6)
    targets(source, 0, 6)
    assert len(calls) == 2


@pytest.mark.parametrize("make", [lambda: (X, Y), dataset, Sequence])
def test_a_function_gives_what_the_data_themselves_give(make: Callable[[], Any]) -> None:
    assert targets(Source(make, 2), 1, 4) == targets(Source(make(), 2), 1, 4)


def test_a_callable_dataset_is_no_function() -> None:
    class Called(Sequence):
        def __call__(self) -> Any:
            raise AssertionError("It was called.")

    assert targets(Source(Called(), 2), 0, 1) == [[0, 1]]


# ------------------------------------------------------------------------------ counting


@pytest.mark.parametrize(
    ("data", "size", "count"),
    [
        ((X, Y), 2, 3),
        ((X, Y), 5, 1),
        ((X, Y), None, 1),
        (dataset(), None, 3),
        (dataset, None, 3),
        (Sequence(), None, 3),
        # One whose length nobody knows is counted by reading it.
        (dataset().filter(lambda x, y: y[0] > 0), None, 2),
    ],
)
def test_the_batches_of_an_epoch_are_counted(data: Any, size: int | None, count: int) -> None:
    assert Source(data, size).num_batches() == count


@pytest.mark.parametrize("data", [dataset().repeat(), Sequence(None)])
def test_an_epoch_without_end_is_refused(data: Any) -> None:
    message = f"The data never end. Expected data with an end. Received: train_data of type {type(data).__name__}. Say how many `steps` to train."  # noqa: E501
    with pytest.raises(InputsError, match=re.escape(message)):
        Source(data, None).num_batches()


def test_validation_data_without_end_are_refused_with_another_way_out() -> None:
    source = Source(dataset().repeat(), None, "validation_data")
    with pytest.raises(InputsError, match=r"Received: validation_data .* Use take\(\)\."):
        source.check_that_it_ends(source.open())


def test_training_may_take_steps_of_data_without_end() -> None:
    assert targets(Source(dataset().repeat(), None), 0, 5)[4] == [2, 3]


@pytest.mark.parametrize("data", [None, lambda: None])
def test_no_data_are_refused(data: Any) -> None:
    with pytest.raises(InputsError, match=r"There are no data\. .* Received: train_data="):
        Source(data, 2).open()


# ------------------------------------------------------------------------------ sameness


@pytest.mark.parametrize("data", [(X, Y), dataset(), Sequence(), dataset])
def test_data_that_repeat_give_their_first_batch(data: Any) -> None:
    source = Source(data, 2)
    batch = source.check_that_it_repeats()
    assert batch.y.numpy().tolist() == targets(source, 0, 1)[0]


def test_a_dataset_that_shuffles_anew_each_time_is_refused() -> None:
    data = tf.data.Dataset.range(10**6).shuffle(10**4).batch(32)
    message = (
        "The data are not the same the second time: batch 1 of train_data differs. Every "
        "precision has to get the same batches: give `shuffle` a seed and "
        "reshuffle_each_iteration=False"
    )
    with pytest.raises(InputsError, match=re.escape(message)):
        Source(data, None).check_that_it_repeats()


def test_a_dataset_that_shuffles_the_same_way_repeats() -> None:
    data = tf.data.Dataset.range(100).shuffle(100, seed=1, reshuffle_each_iteration=False).batch(9)
    Source(data, None).check_that_it_repeats()


def test_a_function_that_returns_other_data_the_second_time_is_refused() -> None:
    numbers = itertools.count()
    with pytest.raises(InputsError, match="second time: batch 1 of train_data differs"):
        Source(lambda: (X + next(numbers), Y), 2).check_that_it_repeats()


def test_the_batch_that_differs_is_counted_from_one() -> None:
    with pytest.raises(InputsError, match="batch 8 of train_data differs"):
        check_same(1, 2, 7)


def test_equal_fingerprints_are_the_same() -> None:
    check_same(3, 3, 7)


def batch_of(*leaves: Any) -> Batch:
    return Batch(*(None if one is None else tf.constant(one) for one in leaves))


OTHERS = {
    "another value": batch_of([[1.0, 2.5]], [3]),
    "another shape": batch_of([1.0, 2.0], [3]),
    "another order": batch_of([[2.0, 1.0]], [3]),
    "another target": batch_of([[1.0, 2.0]], [4]),
    "no target": batch_of([[1.0, 2.0]]),
    "weights": batch_of([[1.0, 2.0]], [3], [1.0]),
    "inputs and targets exchanged": batch_of([3], [[1.0, 2.0]]),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_batch_has_another_fingerprint(what: str) -> None:
    assert fingerprint(OTHERS[what]) != fingerprint(batch_of([[1.0, 2.0]], [3]))


def test_an_equal_batch_has_the_same_fingerprint() -> None:
    assert fingerprint(batch_of([[1.0, 2.0]], [3])) == fingerprint(batch_of([[1.0, 2.0]], [3]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": tf.ones(2), "b": tf.zeros(2)}, {"a": tf.zeros(2), "b": tf.ones(2)}),
        (tf.constant(["ab", "c"]), tf.constant(["a", "bc"])),
        (tf.ragged.constant([[1, 2], [3]]), tf.ragged.constant([[1], [2, 3]])),
        (tf.sparse.from_dense([[1, 0]]), tf.sparse.from_dense([[0, 1]])),
        (tf.cast([1.0], tf.bfloat16), tf.cast([2.0], tf.bfloat16)),
    ],
)
def test_structures_texts_and_composites_have_fingerprints(one: Any, other: Any) -> None:
    assert fingerprint(Batch(one)) == fingerprint(Batch(one)) != fingerprint(Batch(other))


def test_nan_has_a_fingerprint_that_repeats() -> None:
    batch = batch_of([np.nan, 1.0])
    assert fingerprint(batch) == fingerprint(batch_of([np.nan, 1.0]))
