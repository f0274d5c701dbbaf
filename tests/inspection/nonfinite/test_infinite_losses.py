"""Code may mean an infinite output; an infinite loss, gradient or weight nobody means."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from .small import ONES, Apply, chain, dense, fault, place, place_on, report_on

pytestmark = pytest.mark.usefixtures("float16")


def masked_classes(x):
    return ops.where(ops.arange(4) < 2, x, ops.cast(-np.inf, x.dtype))


def cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def masked_model(**options):
    mask = Apply(masked_classes, name="mask", dtype="float32")
    return chain(dense(), mask, loss=cross_entropy(), **options)


def test_a_label_of_a_masked_class_makes_the_loss_infinite():
    assert place_on(masked_model(), ONES, np.array([0, 1, 2, 1]))[0] == "mask"


def test_the_loss_is_listed_as_reached():
    assert "@loss" in report_on(masked_model(), ONES, np.array([0, 1, 2, 1])).reached


def test_labels_of_other_classes_leave_the_mask_harmless():
    assert place_on(masked_model(), ONES, np.array([0, 1, 0, 1])) is None


def test_the_constant_is_said_to_reach_what_must_be_finite():
    origin = report_on(masked_model(), ONES, np.array([0, 1, 2, 1])).origin
    assert origin.reason == "The code puts it there, and it reaches what must be finite."


def test_a_product_with_a_written_infinity_is_no_clean_loss():
    infinite = fault(lambda x: ops.abs(x) * np.inf, dtype="float32")
    assert place_on(chain(dense(dtype="float32"), infinite)) == ("fault", "Const", "forward")


def test_an_infinity_in_the_loss_function_is_told_there():
    def loss(y, p):
        return tf.where(p > 1e9, p, np.inf)

    assert place_on(chain(dense(dtype="float32"), loss=loss))[0] == "@loss"


def test_an_infinite_loss_weight_is_no_clean_loss():
    assert place_on(chain(dense(), loss_weights=[np.inf]))[0] == "@loss"


def test_an_infinite_output_that_the_loss_does_not_see_is_meant():
    def loss(y, p):
        return tf.reduce_mean(tf.exp(p))

    # exp(-inf) is 0.
    assert place_on(chain(dense(), fault(masked_classes, dtype="float32")), loss=loss) is None


def test_a_nan_is_never_meant():
    nan = fault(lambda x: x + tf.constant(np.nan, x.dtype))
    assert place(report_on(chain(nan, dense()))) == ("fault", "Const", "forward")


class Keeping(layers.Layer):
    """Keeps an infinity that its code says."""

    def build(self, shape):
        self.kept = self.add_weight(shape=(), initializer="zeros", trainable=False, name="kept")

    def call(self, inputs):
        self.kept.assign(ops.cast(np.inf, "float32"))
        return inputs


def test_a_written_infinity_that_a_variable_keeps_is_told():
    report = report_on(chain(Keeping(name="fault"), dense()))
    assert report.reached == ("fault/kept",)
