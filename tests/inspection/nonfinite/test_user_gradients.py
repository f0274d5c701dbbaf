"""Gradients that users write belong to the layer that they are written in."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from .small import ONES, chain, dense, fault, line_in, place, place_on, report_on

pytestmark = pytest.mark.usefixtures("float16")


def between(function):
    """A layer at fault with others before and behind it."""
    return chain(dense(name="before"), fault(function), dense(name="behind"))


def bad_backward():
    @tf.custom_gradient
    def twice(x):
        def gradient(upstream):
            negative = -tf.abs(x) - 1
            return upstream * tf.math.log(negative)

        return x * 2, gradient

    return twice


def test_a_fault_in_a_custom_gradient_is_the_layers_that_holds_it():
    assert place_on(between(bad_backward())) == ("fault", "Log", "backward")


def test_a_fault_in_a_custom_gradient_has_a_line_of_its_own():
    assert line_in(report_on(between(bad_backward()))) == "return upstream * tf.math.log(negative)"


def test_a_fault_in_a_custom_gradient_of_keras_is_found_too():
    @keras.ops.custom_gradient
    def twice(x):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return upstream * tf.math.log(-tf.abs(x) - 1)

        return x * 2, gradient

    assert place_on(between(twice)) == ("fault", "Log", "backward")


def test_what_is_computed_again_for_its_gradient_keeps_its_layer():
    again = tf.recompute_grad(lambda x: tf.math.log(x * 0.0))
    model = between(lambda x: tf.where(x > 1e5, again(x), x))
    # The logarithm is chosen away; the slope of it, infinity times zero, is not.
    assert place_on(model) == ("fault", "Reciprocal", "backward")


def test_a_gradient_of_tensorflow_names_the_layer_whose_gradient_it_is():
    model = between(lambda x: x + tf.sqrt(x * 0))
    assert place_on(model) == ("fault", "SqrtGrad", "backward")


def test_a_gradient_of_tensorflow_names_the_line_of_the_forward_pass():
    def root(x):
        nothing = x * 0
        return x + tf.sqrt(nothing)

    assert line_in(report_on(between(root))) == "return x + tf.sqrt(nothing)"


def bad_at_any_scale():
    @tf.custom_gradient
    def twice(x):
        def gradient(upstream):
            return upstream * tf.math.log(tf.maximum(x * 0, tf.cast(1e-9, x.dtype)))

        return x * 2, gradient

    return twice


def report_at_a_high_scale():
    # Targets far off: the gradients of the last layer overflow at this scale, and at 1 do not.
    return report_on(between(bad_at_any_scale()), y=ONES * 8, loss_scale=2.0**15)


def test_what_no_scale_cures_is_told_before_an_overflow_that_one_does():
    assert place(report_at_a_high_scale()) == ("fault", "Log", "backward")


def test_what_no_scale_cures_has_no_clean_scale():
    report = report_at_a_high_scale()
    assert (report.clean_scale, report.is_only_loss_scale) == (None, False)


def test_the_overflow_that_a_lower_scale_cures_is_noted_as_harmless():
    (note,) = report_at_a_high_scale().notes
    assert note.startswith("At loss scale 32768 gradients overflow besides, first in behind")
    assert note.endswith(": harmless.")


def test_what_no_scale_cures_is_told_with_the_scale_that_it_was_seen_at():
    assert report_at_a_high_scale().loss_scale == 1.0
