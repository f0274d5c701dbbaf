"""How far results are from float32: norms and cosines by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tf_amp_kit.comparison.planning.running.results import (
    Results,
    difference_of_batches,
    errors_between,
    norm,
)

INF, NAN = math.inf, math.nan


def results_of(*, loss=None, gradients=None, **outputs):
    """What a batch gave, with outputs by name."""
    return Results(
        {name: np.array(one, np.float32) for name, one in outputs.items()},
        loss,
        {path: np.array(one, np.float32) for path, one in (gradients or {}).items()},
        (),
    )


def output_error(wide, half):
    return errors_between([results_of(y=wide)], [results_of(y=half)]).output


def loss_error(wide, half):
    pairs = ([results_of(y=[1], loss=one) for one in side] for side in (wide, half))
    return errors_between(*pairs).loss


def gradient_errors(wide, half):
    pairs = ([results_of(y=[1], gradients=one) for one in side] for side in (wide, half))
    errors = errors_between(*pairs)
    return errors.gradient, errors.gradient_cosine


def test_an_output_error_is_the_norm_of_the_difference_over_the_norm_in_float32():
    assert output_error([[6, 0], [0, 8]], [[6, 3], [4, 8]]) == 0.5


def test_all_batches_together_make_one_norm():
    # |(3, 4)| / |(6, 8)|, and not the mean of 3 / 6 and 4 / 8.
    wide = [results_of(y=[6]), results_of(y=[8, 0])]
    half = [results_of(y=[9]), results_of(y=[8, 4])]
    assert errors_between(wide, half).output == 0.5


def test_errors_of_several_outputs_are_the_legs_of_a_triangle():
    wide, half = results_of(a=[1], b=[1000]), results_of(a=[1.75], b=[2000])
    assert errors_between([wide], [half]).output == 1.25  # 3/4 and 1


def test_equal_outputs_have_no_error():
    assert output_error([1, 2], [1, 2]) == 0


def test_zeros_that_stay_zeros_have_no_error():
    assert output_error([0, 0], [0, -0.0]) == 0


def test_what_was_all_zero_and_is_not_has_an_infinite_error():
    assert output_error([0, 0], [0, 1e-8]) == INF


def test_an_infinity_on_both_sides_is_no_error():
    assert output_error([INF, -INF, 2], [INF, -INF, 3]) == 0.5


@pytest.mark.parametrize(
    ("wide", "half"),
    [([1, 1], [1, INF]), ([1, INF], [1, 1]), ([1, INF], [1, -INF]), ([1, 1], [1, NAN])],
)
def test_an_infinity_or_nan_of_one_side_is_an_infinite_error(wide, half):
    assert output_error(wide, half) == INF


def test_differences_are_taken_in_float64():
    # In float32 the square of 2e30 would overflow.
    assert output_error([2e30], [3e30]) == pytest.approx(0.5, rel=1e-6)


def test_an_output_without_elements_has_no_error():
    assert output_error(np.zeros((0, 3)), np.zeros((0, 3))) == 0


def test_a_loss_error_is_the_sum_of_the_changes_over_the_sum_in_float32():
    assert loss_error([2.0, -6.0], [3.0, -7.0]) == 0.25


@pytest.mark.parametrize("half", [INF, NAN])
def test_a_loss_that_is_not_finite_has_an_infinite_error(half):
    assert loss_error([1.0, 1.0], [1.0, half]) == INF


@pytest.mark.parametrize(("half", "expected"), [(0.0, 0), (0.5, INF)])
def test_a_loss_of_zero_has_to_stay_zero(half, expected):
    assert loss_error([0.0], [half]) == expected


def test_a_model_without_a_loss_has_no_loss_error():
    assert loss_error([None], [None]) is None


def test_without_gradients_nothing_is_said_of_them():
    assert gradient_errors([{}], [{}]) == (None, None)


def test_gradients_of_all_weights_make_one_vector():
    # (4, 0, 3) and (4, 5, 3): the difference is 5 long, the product of both is 25.
    wide, half = {"a": [[4, 0]], "b": [3]}, {"a": [[4, 5]], "b": [3]}
    error, cosine = gradient_errors([wide], [half])
    assert (error, cosine) == (1, pytest.approx(25 / (5 * math.sqrt(50))))


def test_gradients_are_compared_by_weight_whatever_their_order():
    wide, half = {"a": [1], "b": [2]}, {"b": [2], "a": [1]}
    assert gradient_errors([wide], [half]) == (0, pytest.approx(1))


def test_gradients_of_all_batches_make_one_vector():
    error, cosine = gradient_errors([{"a": [3]}, {"a": [4]}], [{"a": [-4]}, {"a": [3]}])
    assert (error, cosine) == (pytest.approx(math.sqrt(50) / 5), 0)


@pytest.mark.parametrize(("factor", "expected"), [(2, 1), (-0.5, -1)])
def test_a_cosine_is_blind_to_lengths(factor, expected):
    _, cosine = gradient_errors([{"a": [1, 2]}], [{"a": [factor, 2 * factor]}])
    assert cosine == pytest.approx(expected)


def test_a_gradient_that_is_not_finite_has_no_cosine():
    error, cosine = gradient_errors([{"a": [1, 2]}], [{"a": [1, NAN]}])
    assert (error, math.isnan(cosine)) == (INF, True)


def test_a_gradient_of_zero_has_no_cosine():
    error, cosine = gradient_errors([{"a": [1, 2]}], [{"a": [0, 0]}])
    assert (error, math.isnan(cosine)) == (1, True)


def test_a_batch_that_lost_its_gradients_leaves_them_out():
    full, none = results_of(y=[1], gradients={"a": [1]}), results_of(y=[1])
    twice = results_of(y=[1], gradients={"a": [2]})
    assert errors_between([full, full], [twice, none]).gradient == 1
    assert errors_between([full, full], [none, none]).gradient is None


def test_two_batches_differ_by_loss_and_gradient():
    first = results_of(y=[1], loss=2.0, gradients={"a": [3, 4]})
    second = results_of(y=[5], loss=3.0, gradients={"a": [4, -3]})
    found = difference_of_batches(first, second)
    assert (found.loss, found.gradient) == (0.5, pytest.approx(math.sqrt(2)))
    assert found.gradient_cosine == 0


@pytest.mark.parametrize("found", [{"loss": 2.0}, {"gradients": {"a": [3]}}])
def test_batches_without_a_loss_or_gradients_are_not_compared(found):
    less = results_of(y=[1], **found)
    assert difference_of_batches(less, less) is None


def test_a_norm_is_over_all_arrays_and_leaves_out_what_is_not_finite():
    assert norm([np.array([3, INF]), np.array([[NAN, -4]]), np.zeros((0, 2))]) == 5


@pytest.mark.parametrize(
    ("fields", "is_finite"),
    [
        ({"y": [1, 2]}, True),
        ({"y": [1, -INF]}, True),  # a mask in the outputs, say
        ({"y": [1, NAN]}, False),
        ({"y": [1], "loss": 1.0}, True),
        ({"y": [1], "loss": INF}, False),
        ({"y": [1], "loss": NAN}, False),
        ({"y": [1], "gradients": {"a": [0, 1], "b": [INF]}}, False),
        ({"y": [1], "gradients": {"a": [NAN, 1], "b": [1]}}, False),
    ],
)
def test_only_outputs_may_be_infinite(fields, is_finite):
    assert results_of(**fields).is_finite is is_finite
