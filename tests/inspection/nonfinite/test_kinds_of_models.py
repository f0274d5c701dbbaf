"""Models and tensors out of the ordinary: all of them are looked at, and none ends the search."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import ONES, Apply, chain, dense, fault, line_in, place, place_on, report_on


def names_float16(x):
    return tf.exp(x * tf.constant(12.0, tf.float16))


def takes_float16():
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float16)])
    def function(x):
        return tf.exp(x * 12)

    return function


@pytest.mark.usefixtures("float16")
class TestCodeThatNamesFloat16:
    @pytest.mark.parametrize("function", [names_float16, takes_float16()])
    def test_is_searched_all_the_same(self, function):
        assert place_on(chain(fault(function), dense())) == ("fault", "Exp", "forward")

    @pytest.mark.parametrize("function", [names_float16, takes_float16()])
    def test_leaves_float32_unknown(self, function):
        assert report_on(chain(fault(function), dense())).in_float32 is None

    def test_is_told_to_be_unable_to_run_in_float32(self):
        report = report_on(chain(fault(names_float16), dense()))
        assert "not known: the model cannot run in float32" in str(report)


class AddsLoss(layers.Layer):
    def call(self, x):
        size = ops.sum(ops.abs(ops.cast(x, "float32")))
        self.add_loss(ops.log(-size - 1))
        return x


@pytest.mark.parametrize("data", [ONES, (ONES,)], ids=["an array", "a tuple of one"])
def test_inputs_alone_are_enough_for_a_model_that_adds_its_loss(data):
    model = keras.Sequential([keras.Input((4,)), dense(), AddsLoss(name="fault")])
    model.compile("sgd")
    assert place_on(model, data, None) == ("fault", "Log", "forward")


@pytest.mark.usefixtures("float16")
def test_what_overflows_in_a_complex_number_is_found():
    def spectrum(x):
        wide = tf.exp(tf.cast(x, tf.float32) * 90)  # e to the power of 90 is above 3.4e38
        turned = tf.signal.ifft(tf.signal.fft(tf.complex(wide, wide)))
        return tf.abs(turned)

    assert place_on(chain(fault(spectrum), dense())) == ("fault", "Exp", "forward")


@pytest.mark.usefixtures("float16")
def test_what_begins_in_a_complex_number_is_found():
    def quotient(x):
        nothing = tf.cast(x, tf.complex64) * 0
        return tf.abs(nothing / nothing)

    report = report_on(chain(fault(quotient), dense()))
    assert line_in(report) == "return tf.abs(nothing / nothing)"


@pytest.mark.usefixtures("float16")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_with_eight_bit_floats_is_searched():
    model = keras.Sequential([keras.Input((16,)), layers.Dense(16), layers.Dense(4)])
    model.quantize("float8")
    model.compile("sgd", "mse")
    data = np.full((4, 16), np.nan, "float32")
    assert place_on(model, data) == ("@input/0", "", "forward")


class Growing(keras.utils.PyDataset):
    """Each batch is longer than the one before."""

    def __init__(self, last=1):
        super().__init__()
        self.last = last

    def __len__(self):
        return 3

    def __getitem__(self, index):
        x = np.full((2, 3 + index), self.last if index == 2 else 1, "int32")
        return x, np.ones((2, 4), "float32")


def recurrent(*inner):
    model = keras.Sequential(
        [keras.Input((None,), dtype="int32"), layers.Embedding(4, 4), *inner, layers.LSTM(4)]
    )
    model.compile("sgd", "mse")
    return model


def test_batches_of_several_lengths_are_searched():
    assert report_on(recurrent(), Growing(), None).num_batches == 3


def test_a_fault_in_the_longest_batch_is_found():
    # Five steps: exp of 100 only there.
    def grow(x):
        steps = tf.cast(tf.shape(x)[1], x.dtype)
        return x + tf.exp(tf.where(steps > 4, steps * 20, 0.0))

    report = report_on(recurrent(fault(grow)), Growing(), None)
    assert (place(report), report.num_batches) == (("fault", "Exp", "forward"), 3)


def test_a_cast_before_a_layer_of_keras_for_data_is_its_own():
    keras.config.set_dtype_policy("mixed_float16")
    norm = layers.Normalization(mean=1e5, variance=1e10, name="norm")
    assert place_on(chain(norm, dense()), ONES * 7e4) == ("norm", "Cast", "forward")


def test_a_nan_in_a_variable_of_no_layer_is_told_as_a_variables():
    loose = tf.Variable(np.nan, name="loose")
    model = chain(fault(lambda x: x * loose), dense())
    assert place_on(model) == ("@variable", "", "forward")


def test_a_model_of_float64_is_called_so():
    keras.config.set_dtype_policy("float64")
    assert report_on(chain(dense())).precision == "float64"


@pytest.fixture
def optimizer_options():
    before = tf.config.optimizer.get_experimental_options()
    yield before
    tf.config.optimizer.set_experimental_options(before)


def test_searches_in_several_threads_leave_tensorflows_options_alone(optimizer_options):
    models = [chain(fault(lambda x: ops.exp(x * 0 + 12)), dense()) for _ in range(3)]
    threads = [threading.Thread(target=report_on, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tf.config.optimizer.get_experimental_options() == optimizer_options


def test_searches_in_several_threads_find_each_its_own():
    keras.config.set_dtype_policy("mixed_float16")
    functions = {
        "Exp": lambda x: ops.exp(x * 12),
        "Log": lambda x: ops.log(-x),
        "Mul": lambda x: x * 300 * 300,
    }
    models = {
        name: chain(Apply(function, name=name), dense()) for name, function in functions.items()
    }
    found = {}

    def search(name):
        keras.config.set_dtype_policy("mixed_float16")
        found[name] = place_on(models[name])

    threads = [threading.Thread(target=search, args=(name,)) for name in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: (name, name, "forward") for name in functions}
