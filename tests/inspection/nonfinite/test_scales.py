"""What a lower loss scale cures, and the largest scale that does: by hand."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer

from .small import chain, fault, place, report_on, single

ZERO = np.zeros((1, 1), "float32")


def at(number):
    return np.full((1, 1), number, "float32")


def report_of_product(loss_scale=2.0**15, policy="mixed_float16", y=ZERO, **options):
    """x = 64 and w = 1/128: with loss p**2 the gradient of p = 0.5 is 1, that of w is 64.

    So a scale s gives 64 s, which is finite in float16 below 65520: up to s = 2**9.
    """
    keras.config.set_dtype_policy(policy)
    return report_on(
        chain(single(1 / 128), shape=(1,)), at(64), y, loss_scale=loss_scale, **options
    )


def test_a_gradient_that_overflows_by_the_scale_alone_is_found_in_the_backward_pass():
    assert place(report_of_product()) == ("head", "MatMul", "backward")


@pytest.mark.parametrize("loss_scale", [2.0**10, 2.0**11, 2.0**15, 2.0**60])
def test_the_clean_scale_is_the_largest_one_below_by_halving(loss_scale):
    assert report_of_product(loss_scale).clean_scale == 2.0**9


def test_halvings_start_from_the_given_scale():
    # 30000 / 2**5 is 937.5, and 64 times that is 60000; twice as much is above 65520.
    assert report_of_product(3e4).clean_scale == 937.5


def test_what_a_lower_scale_cures_is_only_the_loss_scale():
    assert report_of_product().is_only_loss_scale


def test_what_a_lower_scale_cures_is_not_there_in_float32():
    assert report_of_product().in_float32 is False


def test_the_report_says_that_dynamic_scaling_gets_there_by_itself():
    assert "Scale:     clean at 512: dynamic loss scaling gets there" in str(report_of_product())


def test_at_the_clean_scale_there_is_nothing():
    assert report_of_product(2.0**9).origin is None


@pytest.mark.parametrize("policy", ["float16", "mixed_float16"])
def test_pure_float16_is_told_as_mixed_is(policy):
    report = report_of_product(policy=policy)
    assert (report.in_float32, report.clean_scale) == (False, 2.0**9)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32", "float64"])
def test_wider_formats_do_not_overflow_at_that_scale(policy):
    assert report_of_product(policy=policy).origin is None


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32"])
def test_an_optimizer_that_does_not_scale_is_searched_at_scale_one(policy):
    assert report_of_product(None, policy).loss_scale == 1.0


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32"])
def test_at_scale_one_no_lower_scale_is_looked_for(policy):
    keras.config.set_dtype_policy(policy)
    # The slope of the square root at 0.
    model = chain(fault(lambda x: x + keras.ops.sqrt(x * 0)), single(1.0), shape=(1,))
    report = report_on(model, at(1), ZERO)
    assert (report.clean_scale, "Scale:" in str(report)) == (None, False)


def report_of_root():
    """The slope of the square root at 0; all other gradients are at most 2**15."""
    keras.config.set_dtype_policy("mixed_float16")
    model = chain(single(1.0), fault(lambda x: x + keras.ops.sqrt(x * 0)), shape=(1,))
    return report_on(model, at(1), at(0.5), loss_scale=2.0**15)


def test_what_no_scale_cures_is_said_to_be_so():
    assert report_of_root().notes == ("The same happens at loss scale 32768: no lower one helps.",)


def test_what_no_scale_cures_is_told_as_it_is_at_the_lowest_one():
    report = report_of_root()
    assert (report.loss_scale, report.clean_scale) == (1.0, None)


def test_a_fault_of_the_forward_pass_has_no_clean_scale():
    keras.config.set_dtype_policy("mixed_float16")
    model = chain(fault(lambda x: keras.ops.exp(x * 12)), single(1.0), shape=(1,))
    assert report_on(model, at(1), ZERO, loss_scale=2.0**15).clean_scale is None


def report_of_scaled_loss():
    """The loss is 16**2: times a scale it is finite in float32 up to 2**119."""
    return report_on(chain(single(16.0), shape=(1,)), at(1), ZERO, loss_scale=2.0**126)


def test_a_loss_that_only_its_scale_makes_infinite_is_told_in_the_loss():
    assert place(report_of_scaled_loss()) == ("@loss", "Mul", "forward")


def test_a_loss_that_only_its_scale_makes_infinite_has_a_clean_scale():
    assert report_of_scaled_loss().clean_scale == 2.0**119


def test_a_loss_that_only_its_scale_makes_infinite_is_not_called_a_bug():
    assert "a bug" not in str(report_of_scaled_loss())


def scaling_model(**settings):
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((1,)), single(1 / 128)])
    model.compile(LossScaleOptimizer(keras.optimizers.SGD(), **settings), "mse")
    return model


def test_without_a_given_scale_it_is_the_optimizers():
    report = report_on(scaling_model(initial_scale=2.0**11), at(64), ZERO, loss_scale=None)
    assert (report.loss_scale, report.clean_scale) == (2.0**11, 2.0**9)


@pytest.mark.parametrize("scale", [np.inf, 0.0, np.nan])
def test_an_optimizer_at_an_impossible_scale_is_refused(scale):
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((1,)), single(1.0)])
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), "mse")
    model.optimizer.build(model.trainable_variables)
    model.optimizer.dynamic_scale.assign(scale)
    with pytest.raises(OptimizerError, match="positive finite loss scale"):
        report_on(model, at(1), ZERO, loss_scale=None)


@pytest.mark.parametrize("scale", [0, -1.0, np.inf, np.nan, True, "1"])
def test_an_impossible_scale_is_refused(scale):
    with pytest.raises(OptimizerError, match="Received: loss_scale="):
        report_on(chain(single(1.0), shape=(1,)), at(1), ZERO, loss_scale=scale)
