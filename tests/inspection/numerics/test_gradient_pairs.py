"""Gradients in pairs: numbers worked out by hand, and how the record prints itself."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.reporting.records import comparison_of
from tf_amp_kit.inspection.numerics.pairs import GradientPair, compare_arrays


def pair(float32: Any, half: Any) -> GradientPair:
    arrays = [[np.array(one, np.float32)] for one in (float32, half)]
    return compare_arrays("w", *arrays, "float16")


@pytest.mark.parametrize(
    ("float32", "half", "cosine", "error"),
    [
        ([3, 4], [3, 4], 1.0, 0.0),
        ([3, 4], [6, 8], 1.0, 1.0),
        ([3, 4], [-3, -4], -1.0, 2.0),
        ([3, 4], [4, -3], 0.0, math.sqrt(2)),
        ([3, 4], [3, 0], 0.6, 0.8),
        ([[3, 0], [0, 4]], [[3, 0], [0, 4]], 1.0, 0.0),
    ],
)
def test_cosine_and_relative_error_are_those_of_vectors(
    float32: Any, half: Any, cosine: float, error: float
) -> None:
    found = pair(float32, half)
    assert (found.cosine, found.relative_error) == pytest.approx((cosine, error), rel=1e-15)


def test_squares_beyond_float32_are_summed() -> None:
    found = pair([3e-30, 4e-30], [3e-30, 0])
    assert (found.cosine, found.relative_error) == pytest.approx((0.6, 0.8), rel=1e-6)


def test_only_elements_that_were_not_zero_can_vanish() -> None:
    found = pair([0, 1, 2, -3, 4], [0, 0, 2, 0, 4])
    assert (found.num_vanished, found.num_nonzero, found.vanished_fraction) == (2, 4, 0.5)


def test_a_float32_gradient_of_zeros_has_no_error() -> None:
    found = pair([0, 0], [0, 1])
    numbers = math.isnan(found.cosine), math.isnan(found.relative_error), found.vanished_fraction
    assert numbers == (True, True, 0.0)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_in_half_has_an_infinite_error(value: float) -> None:
    found = pair([1, 2], [1, value])
    numbers = found.num_nonfinite, found.relative_error, math.isnan(found.cosine)
    assert numbers == (1, math.inf, True)


def test_empty_gradients_are_compared() -> None:
    found = pair([], [])
    assert (found.num_elements, found.vanished_fraction, found.num_nonfinite) == (0, 0.0, 0)


def test_several_arrays_count_as_one_vector() -> None:
    wide = [np.array([3], np.float32), np.array([[4]], np.float32)]
    half = [np.array([3], np.float32), np.array([[0]], np.float32)]
    found = compare_arrays("", wide, half, "float16")
    assert (found.cosine, found.relative_error, found.num_elements) == (0.6, 0.8, 2)


def test_exponents_are_counted_on_both_sides() -> None:
    found = pair([1, 2, 2.0**-30], [1, 2, 0])
    counts = found.float32.exponent_counts, found.half.exponent_counts
    assert counts == ({-30: 1, 0: 1, 1: 1}, {0: 1, 1: 1})


HAND_MADE = {
    "exact/kernel": ([1, 2], [1, 2]),
    "idle/bias": ([1e-9, 2e-9], [1e-9, 0]),
    "off/kernel": ([3, 4], [3, 0]),
    "zero/bias": ([0, 0], [0, 0]),
    "broken/kernel": ([1, 2], [1, math.inf]),
    "near/kernel": ([3, 4], [3, 4.5]),
}


def test_the_worst_come_first_and_idle_ones_last() -> None:
    found = [one.path for one in comparison_of(HAND_MADE).worst()]
    assert found == [
        "broken/kernel",
        "off/kernel",
        "near/kernel",
        "exact/kernel",
        "idle/bias",
        "zero/bias",
    ]


def test_gradients_of_rounding_noise_are_idle() -> None:
    assert comparison_of(HAND_MADE).idle == ("idle/bias", "zero/bias")


def test_a_gradient_well_above_the_noise_is_not_idle() -> None:
    assert comparison_of({"v": ([1, 1], [1, 1]), "w": ([1e-4], [1e-4])}).idle == ()


TEXT = """\
Gradients of 'model': float16 at loss scale 8 against float32, one batch of 4 samples

Gradient of    Elements    Cosine  Relative error  Vanished  Not finite
-----------------------------------------------------------------------
(all)                12         -             inf    20.0 %           1
broken/kernel         2         -             inf       0 %           1
off/kernel            2  0.600000             0.8    50.0 %           0
near/kernel           2  0.998460             0.1       0 %           0
exact/kernel          2  1.000000               0       0 %           0
idle/bias             2  0.447214            0.89    50.0 %           0
zero/bias             2         -               -       0 %           0
The float32 gradients of 'idle/bias', 'zero/bias' are zero but for rounding."""


def test_the_whole_text_is_as_shown() -> None:
    # Vanished: 2 of 10 that were not zero. 27 / (5 * sqrt(29.25)) is 0.998460, and
    # 1 / sqrt(5) is 0.447214.
    assert str(comparison_of(HAND_MADE, loss_scale=8.0)) == TEXT


def test_ten_weights_are_shown_and_the_others_counted() -> None:
    lines = str(comparison_of({f"w{i}": ([1, 2], [1, 2]) for i in range(12)})).splitlines()
    assert (len(lines), lines[-1]) == (16, "... and 2 more weights: report.table() shows all.")


def test_the_table_shows_all_weights() -> None:
    table = comparison_of({f"w{i}": ([1, 2], [1, 2]) for i in range(12)}).table()
    assert len(table.splitlines()) == 4 + 1 + 12


def test_long_paths_stay_within_a_hundred_columns() -> None:
    path = "/".join(["a_long_name_of_a_block"] * 12)
    lines = str(comparison_of({path: ([1, 2], [1, 2]), "w": ([1e-30], [0])})).splitlines()
    assert max(map(len, lines)) <= 100


def test_the_record_is_strict_json() -> None:
    comparison = comparison_of(HAND_MADE)
    record = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    broken = next(one for one in record["pairs"] if one["path"] == "broken/kernel")
    found = broken["cosine"], broken["relative_error"], broken["half"]["num_infinite"]
    assert (found, json.loads(comparison.to_json())) == ((None, None, 1), record)
