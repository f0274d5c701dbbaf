"""Notes: sensitive operations, casts for nothing, and what the machine does slowly."""

import keras
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.inspection.audit import audit_layer_dtypes
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.rules import Circumstances, run_rules
from tf_amp_kit.tracing.kernels import has_kernel
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


# Kernels, asked for by type: what TensorFlow registers is known from its sources.


@pytest.mark.parametrize(
    ("op_type", "dtype", "expected"),
    [
        ("MaxPool3D", "float16", False),
        ("MaxPool3D", "bfloat16", True),
        ("MatMul", "float16", True),
        ("NoSuchOperation", "float16", True),  # rewritten, or placed elsewhere
    ],
)
def test_a_kernel_is_missing_only_where_others_are_registered(op_type, dtype, expected):
    assert has_kernel(op_type, "T", dtype, "CPU") is expected


def scaled_adam(**kwargs):
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(**kwargs))


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (scaled_adam, []),
        (lambda: keras.optimizers.Adam(loss_scale_factor=1024.0), []),
        (keras.optimizers.Adam, ["@optimizer"]),
    ],
)
def test_a_dynamic_scale_or_a_constant_one_is_scaling(optimizer, expected):
    keras.config.set_dtype_policy("mixed_float16")
    model = model_of(layers.Dense(4))
    model.compile(optimizer(), "mse", auto_scale_loss=False)
    assert [one.path for one in notes(model, "AMP301")] == expected


def test_half_slots_behind_a_loss_scale_are_seen():
    keras.config.set_dtype_policy("float16")
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile(scaled_adam(), "mse", auto_scale_loss=False)
    model.optimizer.build(model.trainable_variables)
    assert "@optimizer" in [one.path for one in notes(model, "AMP302")]


def test_a_layer_that_ran_in_float32_for_the_look_has_no_note():
    class Clashes(layers.Layer):
        def call(self, inputs):
            return tf.exp(inputs) * tf.ones((4,))

    keras.config.set_dtype_policy("mixed_float16")
    report = audit_layer_dtypes(lambda: model_of(Clashes()), verbose=0)
    assert [one.code for one in report.findings if one.code == "AMP203"] == []


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_half_sigmoid_that_is_a_gate_is_no_head(policy):
    # What other weights make reaches the output past the sigmoid, and so do gradients.
    class Gated(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.gate, self.value = keras.layers.Dense(4), keras.layers.Dense(4)

        def build(self, shape):
            self.gate.build(shape)
            self.value.build(shape)

        def call(self, x):
            return x + keras.ops.sigmoid(self.gate(x)) * self.value(x)

    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), Gated()])
    assert not [
        one for one in audit_layer_dtypes(model, verbose=0).findings if one.code == "AMP202"
    ]


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_half_sigmoid_that_inputs_are_multiplied_with_is_a_head(policy):
    keras.config.set_dtype_policy(policy)
    mask, x = keras.Input((1,)), keras.Input((4,))
    probabilities = keras.layers.Dense(1, activation="sigmoid", name="head")(x)
    model = keras.Model([mask, x], keras.layers.Multiply()([mask, probabilities]))
    assert [
        one.path for one in audit_layer_dtypes(model, verbose=0).findings if one.code == "AMP202"
    ] == ["head"]
