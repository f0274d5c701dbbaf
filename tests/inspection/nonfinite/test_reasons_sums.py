"""Sums of many that really ran on the CPU: reductions, products, convolutions, losses."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.nonfinite.operations import full, half, reason_of
from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.inspection.nonfinite.reasons import explain

OVERFLOWS = "overflows float16, whose largest value is 65504."
OVERFLOW = "overflow float16, whose largest value is 65504."
SINGLE = 2.0**128 - 2.0**104  # The largest float32

ramp = tf.cast(tf.tile([[0.0, 1.0]], [1, 70000]), "float16")

REDUCTIONS = [
    ("Sum", [ramp, tf.constant(1)], {}, f"Sum of 140000 elements from 0 to 1 {OVERFLOWS}"),
    ("Sum", [full([2, 3], 30000), tf.constant(1)], {}, f"Sum of 3 elements of 30000 {OVERFLOWS}"),
    (
        "Sum",
        [full([3], 3e38, "float32"), tf.constant(0)],
        {},
        f"Sum of 3 elements of 3e+38 overflows float32, whose largest value is {SINGLE:.4g}.",
    ),
    (
        "Mean",
        [full([3], 30000), tf.constant([0])],
        {},
        "Mean sums 3 elements of 30000, which overflows float16, whose largest value is 65504.",
    ),
    ("Mean", [half(), tf.constant(0)], {}, "Mean of no elements is NaN."),
    ("Max", [half(), tf.constant(0)], {}, "Max of no elements is -inf."),
    ("BiasAddGrad", [full([4, 2], 30000)], {}, f"BiasAddGrad of 4 elements of 30000 {OVERFLOWS}"),
    ("L2Loss", [full([9], 300)], {}, f"L2Loss of the squares of 9 elements of 300 {OVERFLOWS}"),
    (
        "EuclideanNorm",
        [full([4], 300), tf.constant(0)],
        {},
        f"EuclideanNorm of the squares of 4 elements of 300 {OVERFLOWS}",
    ),
    (
        "Cumsum",
        [full([2, 4], 30000), tf.constant(1)],
        {},
        f"Cumsum of up to 4 elements of 30000 {OVERFLOWS}",
    ),
    (
        "UnsortedSegmentSum",
        [full([4, 3], 30000), tf.constant([0, 0, 0, 1]), tf.constant(2)],
        {},
        f"UnsortedSegmentSum of up to 4 elements of 30000 {OVERFLOWS}",
    ),
    (
        "SegmentSum",
        [full([4, 3], 30000), tf.constant([0, 0, 0, 1])],
        {},
        f"SegmentSum of up to 4 elements of 30000 {OVERFLOWS}",
    ),
    ("Prod", [full([4], 300), tf.constant(0)], {}, f"Prod of 4 elements of 300 {OVERFLOWS}"),
    (
        "AvgPool",
        [full([1, 2, 2, 1], 60000)],
        {"ksize": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "padding": "VALID"},
        "AvgPool sums up to 4 elements of 60000, which overflows float16, whose largest value is "
        "65504.",
    ),
    (
        "LRN",
        [full([1, 1, 1, 12], 300)],
        {},
        f"LRN: the sum of the squares of 11 channels of 300 {OVERFLOWS}",
    ),
]


@pytest.mark.parametrize(("operation", "inputs", "attributes", "sentence"), REDUCTIONS)
def test_a_reduction_tells_how_many_elements_it_sums(operation, inputs, attributes, sentence):
    assert reason_of(operation, *inputs, **attributes) == sentence


PLAIN = {"strides": [1, 1, 1, 1], "padding": "VALID"}
DEEP = {"strides": [1, 1, 1, 1, 1], "padding": "VALID"}
image, kernel, out = full([3, 4, 4, 2], 100), full([2, 2, 2, 5], 100), full([3, 3, 3, 5], 100)
volume, cube, deep = (
    full([3, 3, 3, 3, 2], 100),
    full([2, 2, 2, 2, 5], 100),
    full([3, 2, 2, 2, 5], 100),
)

# How many products each element of the result is the sum of, by hand.
CONTRACTIONS = [
    ("MatMul", [full([2, 7], 100), full([7, 3], 100)], {}, "7"),
    ("MatMul", [full([7, 2], 100), full([7, 3], 100)], {"transpose_a": True}, "7"),
    ("BatchMatMulV2", [full([4, 2, 7], 100), full([4, 7, 3], 100)], {}, "7"),
    ("BatchMatMulV2", [full([4, 7, 2], 100), full([4, 7, 3], 100)], {"adj_x": True}, "7"),
    (
        "Einsum",
        [[full([4, 8, 2, 7], 100), full([4, 9, 2, 7], 100)]],
        {"equation": "bqhd,bkhd->bhqk"},
        "7",
    ),
    (
        "Einsum",
        [[full([4, 2, 3, 5], 100), full([3, 5, 6], 100)]],
        {"equation": "...cd,cdo->...o"},
        "15",
    ),
    ("Conv2D", [image, kernel], PLAIN, "8"),
    ("Conv2DBackpropInput", [tf.constant([3, 4, 4, 2]), kernel, out], PLAIN, "up to 20"),
    ("Conv2DBackpropFilter", [image, tf.constant([2, 2, 2, 5]), out], PLAIN, "27"),
    ("DepthwiseConv2dNative", [full([3, 4, 4, 2], 200), full([2, 2, 2, 1], 100)], PLAIN, "4"),
    (
        "DepthwiseConv2dNativeBackpropInput",
        [tf.constant([3, 4, 4, 2]), full([2, 2, 2, 4], 100), full([3, 3, 3, 8], 100)],
        PLAIN,
        "up to 16",
    ),
    (
        "DepthwiseConv2dNativeBackpropFilter",
        [image, tf.constant([2, 2, 2, 1]), full([3, 3, 3, 2], 100)],
        PLAIN,
        "27",
    ),
    ("Conv3D", [volume, cube], DEEP, "16"),
    ("Conv3DBackpropInputV2", [tf.constant([3, 3, 3, 3, 2]), cube, deep], DEEP, "up to 40"),
    ("Conv3DBackpropFilterV2", [volume, tf.constant([2, 2, 2, 2, 5]), deep], DEEP, "24"),
]


@pytest.mark.parametrize(("operation", "inputs", "attributes", "count"), CONTRACTIONS)
def test_a_contraction_tells_how_many_products_it_sums(operation, inputs, attributes, count):
    first = 200 if operation == "DepthwiseConv2dNative" else 100
    assert reason_of(operation, *inputs, **attributes) == (
        f"{operation}: sums of {count} products of {first} and 100 {OVERFLOW}"
    )


def test_a_product_that_overflows_by_itself_needs_no_sum():
    sentence = f"MatMul: a product of 300 and 400 {OVERFLOWS}"
    assert reason_of("MatMul", full([1, 2], 300), full([2, 1], 400)) == sentence


def test_an_einsum_of_one_operand_is_a_sum():
    sentence = f"Einsum of 3 elements of 30000 {OVERFLOWS}"
    assert reason_of("Einsum", [full([2, 3], 30000)], equation="ab->a") == sentence


def test_channels_first_are_not_counted_as_places():
    # No CPU kernel has this layout: batch 3 and 4 times 4 places, of 5 channels.
    gradients = np.full((3, 5, 4, 4), 100, "float16")
    operands = [Operand.of(np.full((3, 2, 5, 5), 100, "float16")), Operand.of(gradients)]
    sizes = Operand.of(np.array([2, 2, 2, 5]))
    reason = explain(
        "Conv2DBackpropFilter",
        [operands[0], sizes, operands[1]],
        Operand.of(np.float16(math.inf)),
        {"data_format": b"NCHW"}.get,
    )
    assert reason == f"Conv2DBackpropFilter: sums of 48 products of 100 and 100 {OVERFLOW}"


CROSS_ENTROPY = "SparseSoftmaxCrossEntropyWithLogits"
APART = (
    "of logits from -60000 to 60000: their difference of up to 120000 overflows float16 from "
    "65520 on."
)
far = tf.constant([[6e4, -6e4]], "float16")


@pytest.mark.parametrize(
    ("operation", "inputs"),
    [
        ("LogSoftmax", [far]),
        (CROSS_ENTROPY, [far, tf.constant([1])]),
        ("SoftmaxCrossEntropyWithLogits", [far, tf.constant([[0, 1]], "float16")]),
    ],
)
def test_logits_too_far_apart_are_told(operation, inputs):
    assert reason_of(operation, *inputs) == f"{operation} {APART}"


def test_integer_labels_out_of_range_are_told():
    # An error on CPUs, NaN on GPUs and in compiled steps.
    logits, labels = tf.constant([[1.0, 2.0]]), tf.constant([2])
    compiled = tf.function(
        lambda labels: tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=logits, labels=labels
        ),
        jit_compile=True,
    )
    operands = [Operand.of(logits.numpy()), Operand.of(labels.numpy())]
    result = Operand.of(compiled(labels)[0].numpy())
    assert explain(CROSS_ENTROPY, operands, result, {}.get) == (
        f"{CROSS_ENTROPY}: the integer labels, 2, are out of range: 2 classes have labels from "
        "0 to 1."
    )


def normalized(x, *, scale=1.0, variance=None, **attributes):
    """Normalizes float values of one channel, with their own statistics unless given others."""
    given = tf.constant([] if variance is None else [variance])
    mean = tf.zeros_like(given)
    column = tf.reshape(x, [-1, 1, 1, 1])
    offset = tf.constant([0.0])
    inputs = (column, tf.constant([scale]), offset, mean, given)
    return reason_of("FusedBatchNormV3", *inputs, is_training=variance is None, **attributes)


def test_batch_normalization_over_one_element_without_epsilon_is_zero_by_zero():
    assert normalized(half(3), epsilon=0.0) == (
        "FusedBatchNormV3 over one element per channel: the variance is 0 and epsilon too, and "
        "0 / 0 is NaN."
    )


def test_batch_normalization_tells_a_negative_variance():
    assert normalized(half(3), variance=-1.0) == (
        "FusedBatchNormV3 with a negative variance (-1) is NaN."
    )


def test_batch_normalization_tells_that_the_variance_overflows():
    # The variance itself: the normalized values become 0.
    assert normalized(tf.constant([3e30, -3e30], "bfloat16"), output=2) == (
        "FusedBatchNormV3: the variance of values from -2.991e+30 to 2.991e+30 can overflow "
        f"float32, whose largest value is {SINGLE:.4g}, in which it is computed."
    )


def test_batch_normalization_tells_a_scale_that_makes_the_output_overflow():
    # One value of four that stands apart is normalized to the root of 3.
    assert normalized(half(3, 1, 1, 1), scale=6e4) == (
        f"FusedBatchNormV3: normalized values up to {math.sqrt(3):.4g} times a scale of 60000 "
        "plus an offset of 0 overflows float16 from 65520 on."
    )


def test_the_gradient_of_batch_normalization_tells_the_steepest_slope():
    x = full([2, 1, 1, 1], 1.0)
    gradients = tf.reshape(half(6e4, -6e4), [2, 1, 1, 1])
    one, zero = tf.constant([1.0]), tf.constant([0.0])
    assert reason_of("FusedBatchNormGradV3", gradients, x, one, one, zero, zero, epsilon=1e-4) == (
        "FusedBatchNormGradV3 multiplies the gradient (values from -60000 to 60000) by the scale "
        "over the standard deviation, which is up to 100: that can overflow float16 from 65520 on."
    )
