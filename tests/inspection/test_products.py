"""Multiply-adds per sample, against counts by hand."""

import keras
import pytest
from keras import layers

from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.products import num_multiply_adds, products

# The input shape, the layer and its multiply-adds for one sample.
COUNTS = {
    "dense": ((7,), lambda: layers.Dense(5), 7 * 5),
    "dense over a sequence": ((3, 7), lambda: layers.Dense(5), 3 * 7 * 5),
    "convolution": ((8, 8, 3), lambda: layers.Conv2D(4, 3), 6 * 6 * 4 * 3 * 3 * 3),
    "strided convolution": (
        (8, 8, 3),
        lambda: layers.Conv2D(4, 2, strides=2),
        4 * 4 * 4 * 2 * 2 * 3,
    ),
    "grouped convolution": (
        (8, 8, 4),
        lambda: layers.Conv2D(6, 3, groups=2),
        6 * 6 * 6 * 3 * 3 * 2,
    ),
    "depthwise convolution": (
        (8, 8, 3),
        lambda: layers.DepthwiseConv2D(3, depth_multiplier=2),
        6 * 6 * 3 * 2 * 3 * 3,
    ),
    "transposed convolution": (
        (4, 4, 3),
        lambda: layers.Conv2DTranspose(2, 3),
        4 * 4 * 3 * 3 * 3 * 2,
    ),
    "volume convolution": ((4, 4, 4, 2), lambda: layers.Conv3D(3, 2), 27 * 3 * 8 * 2),
    "einsum": ((3, 7), lambda: layers.EinsumDense("abc,cd->abd", (None, 5)), 3 * 7 * 5),
}


def traced(make, shape):
    inputs = keras.Input(shape)
    (trace, *_) = trace_modes(keras.Model(inputs, make()(inputs)), modes=(False,))
    return trace


@pytest.mark.parametrize("name", COUNTS)
def test_multiply_adds_are_what_hand_counting_gives(name):
    shape, make, expected = COUNTS[name]
    trace = traced(make, shape)
    assert sum(num_multiply_adds(trace, op) for op in products(trace)) == expected


def test_the_share_of_one_of_two_products_is_its_part_of_both():
    inputs = keras.Input((4,))
    outputs = layers.Dense(1)(layers.Dense(6)(inputs))
    (trace,) = trace_modes(keras.Model(inputs, outputs), modes=(False,))
    view = Inquiry(trace, "float32")
    shares = sorted(view.share([op]) for op in view.products)
    assert shares == pytest.approx([6 / 30, 24 / 30])


def test_a_model_without_products_has_no_share():
    view = Inquiry(traced(layers.ReLU, (4,)), "float32")
    assert view.share([]) == 0.0
