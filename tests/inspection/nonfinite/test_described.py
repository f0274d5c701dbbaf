"""What is told besides the origin: where it spread to, what it reached, and what went in."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import ONES, Apply, chain, dense, fault, line_in, place, place_on, report_on

pytestmark = pytest.mark.usefixtures("float16")


def growth(x):
    return ops.exp(x * 12)


def test_layers_after_the_origin_are_listed_in_their_order():
    model = chain(
        dense(name="before"), fault(growth), dense(name="second"), dense(name="third"), shape=(4,)
    )
    model.get_layer("before").kernel.assign(np.eye(4))
    assert report_on(model).spread == ("second", "third")


def test_layers_that_it_does_not_get_to_are_not_listed():
    inputs = keras.Input((4,))
    bad, good = fault(growth)(inputs), dense(name="aside")(inputs)
    model = keras.Model(inputs, [dense()(bad), good])
    model.compile("sgd", ["mse", "mse"])
    assert report_on(model, ONES, [ONES, ONES]).spread == ("head",)


def test_all_that_a_step_leaves_behind_is_listed_as_reached():
    model = chain(fault(growth), dense(), metrics=["mae"])
    assert set(report_on(model).reached) >= {
        "@output/0",
        "@loss",
        "@gradients/head/kernel",
        "@gradients/head/bias",
        "@metrics/mae",
    }


def test_the_counts_of_metrics_are_not_listed_beside_their_results():
    reached = report_on(chain(fault(growth), dense(), metrics=["mae"])).reached
    assert "@variable" not in reached


def test_outputs_are_listed_by_their_keys():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, {"p": fault(growth)(inputs), "q": dense()(inputs)})
    model.compile("sgd", {"p": "mse", "q": "mse"})
    reached = report_on(model, ONES, {"p": ONES, "q": ONES}).reached
    assert [name for name in reached if name.startswith("@output")] == ["@output/p"]


def test_a_layer_of_a_nested_model_is_told_by_its_whole_path():
    inner = keras.Sequential([keras.Input((4,)), fault(growth)], name="inner")
    assert place_on(chain(inner, dense())) == ("inner/fault", "Exp", "forward")


def test_a_layer_that_is_used_twice_is_told_where_it_goes_wrong():
    inputs = keras.Input((4,))
    shared = fault(lambda x: ops.exp(x))
    model = keras.Model(inputs, dense()(shared(shared(inputs) * 6)))
    model.compile("sgd", "mse")
    # exp(1) * 6 is 16.3, the exponential of which is above 65520.
    (operand,) = report_on(model).origin.operands
    assert operand.maximum == pytest.approx(16.3, abs=0.1)


def test_an_operation_between_layers_has_a_path_of_its_own():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, dense()(ops.exp(dense(name="first")(inputs) * 0 + 12)))
    model.compile("sgd", "mse")
    assert place_on(model) == ("@exp", "Exp", "forward")


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = dense()

    def call(self, inputs):
        return self.head(ops.exp(inputs * 12))


def test_code_of_the_model_itself_is_told_with_its_class():
    model = Net()
    model.compile("sgd", "mse")
    model(ONES)
    report = report_on(model)
    assert (report.origin.layer_class, report.origin.operation) == ("Net", "Exp")
    assert line_in(report) == "return self.head(ops.exp(inputs * 12))"


def test_a_model_that_is_not_built_yet_is_searched():
    model = Net()
    model.compile("sgd", "mse")
    assert report_on(model).origin.operation == "Exp"


def test_a_loss_of_the_users_own_is_told_with_its_line():
    def loss(y, p):
        return tf.math.log(tf.reduce_sum(p) * 0 - 1)

    report = report_on(chain(dense()), loss=loss)
    assert place(report) == ("@loss", "Log", "forward")
    assert line_in(report) == "return tf.math.log(tf.reduce_sum(p) * 0 - 1)"


def test_operands_are_given_as_they_were():
    (operand,) = report_on(chain(fault(growth), dense())).origin.operands
    assert (operand.dtype, operand.shape, operand.minimum) == ("float16", (4, 4), 12.0)


def test_the_result_is_counted():
    x = ONES.copy()
    x[0] = 0.5  # exp(6) is 403.4
    result = report_on(chain(fault(growth), dense()), x).origin.result
    assert (result.num_infinite, result.num_elements) == (12, 16)


def test_the_precision_is_that_of_most_half_layers():
    wide = [dense(name=f"wide{number}", dtype="float32") for number in range(3)]
    assert report_on(chain(fault(growth), *wide)).precision == "float16"


def test_another_place_in_float32_is_noted():
    # float16 overflows first; without that the logarithm is what goes wrong.
    def late(x):
        return ops.log(-ops.abs(x) - 1)

    model = chain(
        Apply(growth, name="early"), Apply(lambda x: x * 1e-3, name="small"), fault(late), dense()
    )
    (note,) = report_on(model).notes
    assert "begins in fault (Apply), Log" in note


def test_a_given_loss_takes_the_place_of_the_compiled_one():
    model = chain(fault(lambda x: x * 1), dense(), loss=lambda y, p: tf.math.log(p * 0 - 1))
    assert place_on(model, loss="mse") is None


def test_recurrent_layers_of_keras_are_searched_without_a_loop_of_their_own():
    model = chain(layers.LSTM(4, name="lstm"), dense(), shape=(3, 4))
    x = np.ones((2, 3, 4), "float32")
    x[1, 1, 1] = np.nan
    assert place_on(model, x, np.ones((2, 4))) == ("@input/0", "", "forward")
