"""Notes: sensitive operations, casts for nothing, and what the machine does slowly."""

import keras
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.inspection.audit import audit_layer_dtypes
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.rules import Circumstances, run_rules
from tf_amp_kit.tracing.model_graph import trace_modes


class Sums(layers.Layer):
    def call(self, inputs):
        return inputs - tf.reduce_sum(inputs, -1, keepdims=True)  # PLANTED


class Averages(layers.Layer):
    def call(self, inputs):
        return inputs - tf.reduce_mean(inputs, -1, keepdims=True)


class Exponentiates(layers.Layer):
    def call(self, inputs):
        return ops.exp(inputs)


def model_of(*made):
    return keras.Sequential([keras.Input((4,)), *made, layers.Dense(1, dtype="float32")])


def notes(model, code):
    report = audit_layer_dtypes(model, verbose=0)
    return [one for one in report.findings if one.code == code]


def test_a_sum_in_half_is_on_both_lists_for_float16_and_on_one_for_bfloat16(half):
    (one,) = notes(model_of(Sums()), "AMP203")
    assert ("TensorFlow" in one.message) is (half == "float16")
    assert "torch" in one.message


def test_a_mean_in_half_is_on_no_list_for_bfloat16(half):
    assert len(notes(model_of(Averages()), "AMP203")) == (1 if half == "float16" else 0)


def test_the_line_of_a_sensitive_operation_is_named(half):
    (one,) = notes(model_of(Sums()), "AMP203")
    assert "# PLANTED" in one.source.text


def test_sensitive_operations_of_a_float32_layer_are_fine(half):
    assert notes(model_of(Exponentiates(dtype="float32")), "AMP203") == []


def test_keras_layers_are_not_told_what_they_run(half):
    assert notes(model_of(layers.Activation("exponential")), "AMP203") == []


def test_a_layer_that_narrows_what_its_neighbour_widens_again_is_noted(half):
    # The float32 layer's output is cast down for the next layer, which starts
    # with a cast up.
    model = model_of(layers.Dense(4, dtype="float32"), layers.LayerNormalization(name="norm"))
    assert [one.path for one in notes(model, "AMP106")] == ["norm"]


def test_two_half_layers_cast_nothing(half):
    assert notes(model_of(layers.Dense(4), layers.ReLU()), "AMP106") == []


def run(model, half, **circumstances):
    inquiries = [Inquiry(trace, half) for trace in trace_modes(model)]
    return run_rules(inquiries, Circumstances(**circumstances))


def test_a_slow_precision_is_one_note_with_the_reason(half):
    model = model_of(layers.Dense(4), layers.Dense(4))
    found = run(model, half, slow_reasons={half: "it is emulated"})
    assert [one.message for one in found if one.code == "AMP402"] == [
        f"{half} has no fast path on this machine: it is emulated"
    ]


def test_a_precision_that_is_not_slow_is_no_note(half):
    found = run(model_of(layers.Dense(4)), half, slow_reasons={})
    assert [one for one in found if one.code == "AMP402"] == []


@pytest.mark.parametrize(
    ("device_type", "units", "expected"),
    [("GPU", 100, ("wide",)), ("GPU", 128, ()), ("CPU", 100, ()), ("GPU", 5, ())],
)
def test_large_dimensions_are_noted_where_tensor_cores_want_multiples_of_8(
    device_type, units, expected, half
):
    model = model_of(layers.Dense(units, name="wide"))
    found = run(model, half, device_type=device_type)
    assert [one.affects for one in found if one.code == "AMP403"] == (
        [expected] if expected else []
    )


@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_an_activation_in_float32_before_the_output_is_no_trap(activation, half):
    head = layers.Dense(2, activation, dtype="float32")
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), head])
    assert notes(model, "AMP202") == []


def test_a_half_sigmoid_inside_a_branch_is_a_trap(half):
    class Branches(layers.Layer):
        def call(self, inputs):
            positive = tf.reduce_max(inputs) > 0
            return tf.cond(positive, lambda: tf.sigmoid(inputs), lambda: inputs)

    model = keras.Sequential([keras.Input((4,)), layers.Dense(4), Branches(name="branches")])
    assert [one.path for one in notes(model, "AMP202")] == ["branches"]
