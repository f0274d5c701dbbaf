"""The walk through a dataset ends at the bad batch, names it, keeps it, and shows how far it is."""

from __future__ import annotations

import contextlib
import itertools
import re

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.errors import InputsError
from tf_amp_kit.inspection.nonfinite import find
from tf_amp_kit.inspection.nonfinite.find import find_nonfinite

from .small import ONES, chain, dense, report_on

NAN = ONES * np.nan


class Batches:
    """Batches of ones, of which one is bad; counts those that are drawn."""

    def __init__(self, bad, number=None):
        self.bad, self.number = bad, number
        self.drawn = 0

    def __call__(self):
        for index in itertools.count(1) if self.number is None else range(1, self.number + 1):
            self.drawn += 1
            yield (NAN if index == self.bad else ONES), ONES

    def dataset(self):
        spec = tf.TensorSpec((4, 4), tf.float32)
        options = tf.data.Options()
        # Else TensorFlow itself draws ahead.
        options.experimental_optimization.inject_prefetch = False
        data = tf.data.Dataset.from_generator(self, output_signature=(spec, spec))
        return data.with_options(options)


class Sequence(keras.utils.PyDataset):
    """The same, as Keras has it; endless without a number."""

    def __init__(self, bad, number=None):
        super().__init__()
        self.bad, self.number = bad, number
        self.drawn = 0

    @property
    def num_batches(self):
        return self.number

    def __getitem__(self, index):
        self.drawn = max(self.drawn, index + 1)
        return (NAN if index + 1 == self.bad else ONES), ONES


def rows(bad):
    x = np.ones((20, 4), "float32")
    x[bad] = np.nan
    return x, np.ones((20, 4), "float32")


@pytest.mark.parametrize(("row", "number"), [(0, 1), (3, 1), (4, 2), (19, 5)])
def test_the_bad_batch_of_arrays_is_numbered_from_one(row, number):
    assert report_on(chain(dense()), rows(row), None, batch_size=4).num_batches == number


def test_a_batch_of_arrays_is_as_large_as_in_fit_unless_told_otherwise():
    x = np.ones((64, 4), "float32")
    x[32] = np.nan
    assert report_on(chain(dense()), x, np.ones((64, 4))).num_batches == 2


def test_all_of_the_arrays_are_one_batch_if_asked_for():
    assert report_on(chain(dense()), rows(19), None, batch_size=None).num_batches == 1


@pytest.mark.parametrize("number", [5, None], ids=["of five", "endless"])
def test_the_bad_batch_of_a_dataset_is_numbered(number):
    assert report_on(chain(dense()), Batches(3, number).dataset(), None).num_batches == 3


def test_batches_after_the_bad_one_are_never_drawn():
    batches = Batches(3, 10)
    report_on(chain(dense()), batches.dataset(), None)
    assert batches.drawn == 3


@pytest.mark.parametrize("number", [5, None], ids=["of five", "endless"])
def test_the_bad_batch_of_a_sequence_is_numbered(number):
    assert report_on(chain(dense()), Sequence(3, number), None).num_batches == 3


def test_batches_of_a_sequence_after_the_bad_one_are_never_drawn():
    batches = Sequence(3, 10)
    report_on(chain(dense()), batches, None)
    assert batches.drawn == 3


def test_clean_batches_are_all_counted():
    assert report_on(chain(dense()), Batches(None, 5).dataset(), None).num_batches == 5


def test_targets_beside_a_dataset_are_refused():
    with pytest.raises(InputsError, match="A dataset holds its targets itself"):
        report_on(chain(dense()), Batches(None, 1).dataset(), ONES)


# What is saved.


def saved(path, model, data, y=None, **options):
    report = report_on(model, data, y, save_to=path, **options)
    with np.load(report.saved_to) as file:
        return {name: file[name] for name in file}


def test_the_bad_batch_is_saved_and_no_other(tmp_path):
    x, y = rows(9)
    x += np.arange(20, dtype="float32")[:, None]
    file = saved(tmp_path / "bad.npz", chain(dense()), x, y, batch_size=4)
    np.testing.assert_array_equal(file["x/0"], x[8:12])


def test_targets_and_weights_are_saved_too(tmp_path):
    weights = np.arange(4, dtype="float32")
    file = saved(tmp_path / "bad.npz", chain(dense()), (NAN, ONES * 2, weights))
    assert [*file] == ["x/0", "y/0", "sample_weight/0"]
    np.testing.assert_array_equal(file["y/0"], ONES * 2)
    np.testing.assert_array_equal(file["sample_weight/0"], weights)


def two_inputs(x):
    inputs = {key: keras.Input((4,), name=key) for key in x}
    model = keras.Model(inputs, dense()(layers.Add()([*inputs.values()])))
    model.compile("sgd", "mse")
    return model


def test_inputs_in_a_dictionary_are_saved_by_their_keys(tmp_path):
    x = {"a": ONES * 3, "b": NAN}
    file = saved(tmp_path / "bad.npz", two_inputs(x), x, ONES)
    assert [*file] == ["x/a", "x/b", "y/0"]
    np.testing.assert_array_equal(file["x/a"], x["a"])


def test_bfloat16_is_saved_as_float32_of_the_same_value(tmp_path):
    x = NAN.copy()
    x[0] = 1.2890625  # has 8 significant bits: a bfloat16
    inputs = keras.Input((4,), dtype="bfloat16")
    model = keras.Model(inputs, dense()(inputs))
    model.compile("sgd", "mse")
    file = saved(tmp_path / "bad.npz", model, x.astype(ml_dtypes.bfloat16), ONES)
    assert file["x/0"].dtype == np.float32
    np.testing.assert_array_equal(file["x/0"], x)


def test_ragged_batches_are_saved_filled_up_with_zeros(tmp_path):
    from tf_amp_kit.data import Batch
    from tf_amp_kit.inspection.nonfinite.saving import save_batch

    path = save_batch(Batch(tf.ragged.constant([[1.0, 2.0], [3.0]])), tmp_path / "bad")
    with np.load(path) as file:
        np.testing.assert_array_equal(file["x/0"], [[1, 2], [3, 0]])


def test_sparse_batches_are_saved_dense(tmp_path):
    from tf_amp_kit.data import Batch
    from tf_amp_kit.inspection.nonfinite.saving import save_batch

    path = save_batch(Batch(tf.sparse.from_dense([[0.0, 2.0], [3.0, 0.0]])), tmp_path / "bad")
    with np.load(path) as file:
        np.testing.assert_array_equal(file["x/0"], [[0, 2], [3, 0]])


@pytest.mark.parametrize("name", ["bad", "bad.npz", "new/folder/bad", "bad.batch"])
def test_the_file_has_the_ending_that_numpy_gives_it(tmp_path, name):
    report = report_on(chain(dense()), NAN, save_to=tmp_path / name)
    expected = str(tmp_path / name).removesuffix(".npz") + ".npz"
    assert report.saved_to == expected
    assert [*np.load(expected)] == ["x/0", "y/0"]


def test_a_clean_run_saves_nothing(tmp_path):
    assert report_on(chain(dense()), save_to=tmp_path / "bad.npz").saved_to is None
    assert [*tmp_path.iterdir()] == []


# What is shown.


def shown(capsys, data, y=None, **options):
    report = find_nonfinite(chain(dense()), data, y, loss_scale=1.0, **options)
    return capsys.readouterr().out, report


DATA = {"one batch": (ONES, ONES), "arrays": rows(17), "endless": Batches(5).dataset()}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_the_report_is_shown_and_nothing_else(capsys, data):
    out, report = shown(capsys, data, batch_size=4)
    assert out == f"{report}\n"


def test_each_batch_is_told_of(monkeypatch):
    told = []

    @contextlib.contextmanager
    def working(text, *, is_shown):
        yield told.append

    monkeypatch.setattr(find, "working", working)
    find_nonfinite(chain(dense()), Batches(None, 2).dataset(), loss_scale=1.0, verbose=0)
    find_nonfinite(chain(dense()), ONES, ONES, batch_size=4, loss_scale=1.0, verbose=0)
    start = "Looking for NaN and Inf: batch"
    assert [one.removeprefix(start) for one in told] == [" 1", " 2", " 1 of 1"]


@pytest.mark.parametrize("data", [rows(17), rows([]), Batches(3).dataset()])
def test_nothing_is_shown_if_asked_for(capsys, data):
    out, _ = shown(capsys, data, batch_size=4, verbose=0)
    assert out == ""


def test_a_search_ends_after_as_many_batches_as_are_asked_for():
    endless = tf.data.Dataset.from_tensors((ONES, ONES)).repeat()
    assert report_on(chain(dense()), endless, None, batches=3).num_batches == 3


@pytest.mark.parametrize("batches", [0, -1, 1.5, True])
def test_what_is_no_number_of_batches_is_refused(batches):
    message = f"Expected a whole number of batches from 1 up. Received: batches={batches!r}."
    with pytest.raises(InputsError, match=re.escape(message)):
        report_on(chain(dense()), batches=batches)
