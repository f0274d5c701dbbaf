"""Which loss scales lose nothing, for gradients made by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tf_amp_kit.inspection.numerics.scales import ScaleAdvice, advise_scale
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter
from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings

ABOVE_TIE = float(np.nextafter(np.float32(2.0**-25), np.float32(1)))


def advice(
    *gradients: list[float], precision: str = "float16", measured_at: float = 1.0
) -> ScaleAdvice:
    records = []
    for values in gradients:
        counter = StatisticsCounter(precision)
        counter.add(np.array(values, np.float32))
        records.append(counter.freeze())
    return advise_scale(records, precision, measured_at)


@pytest.mark.parametrize(
    ("smallest", "lowest"),
    [
        (2.0**-24, 1.0),  # 2^-25 would be a tie, and become zero
        (2.0**-25, 2.0),
        (ABOVE_TIE, 1.0),
        (-(2.0**-30), 64.0),
        (1.0, 2.0**-24),
        (2.0**-149, 2.0**125),
    ],
)
def test_the_lowest_scale_brings_the_smallest_element_above_half_a_step(
    smallest: float, lowest: float
) -> None:
    assert advice([smallest, 0.0]).lowest == lowest


@pytest.mark.parametrize(
    ("largest", "highest"),
    [
        (1.0, 2.0**15),
        (65504.0, 1.0),
        (65519.996, 1.0),
        (65520.0, 0.5),
        (-3.0, 2.0**14),
        (2.0**-100, 2.0**115),
    ],
)
def test_the_highest_scale_keeps_the_largest_element_below_overflow(
    largest: float, highest: float
) -> None:
    assert advice([largest]).highest == highest


@pytest.mark.parametrize(
    ("values", "recommended"),
    [
        # Within 2^6 and 2^15; room for eight times as much is left at 2^12.
        ([2.0**-30, 1.0], 2.0**12),
        # Nothing vanishes only from 2^14 on: less room is left.
        ([2.0**-38, 1.0], 2.0**14),
        # Nothing is lost at scale 1.
        ([2.0**-20, 1.0], 1.0),
        # No scale serves both ends: the highest without overflow.
        ([2.0**-45, 1.0], 2.0**15),
        # Scale 1 overflows, 1/2 does not, and the bounds end at 1.
        ([65520.0], 1.0),
    ],
)
def test_the_recommended_scale_loses_nothing_and_leaves_room(
    values: list[float], recommended: float
) -> None:
    assert advice(values).recommended == recommended


def test_the_recommended_scale_stays_within_the_bounds_of_the_factory() -> None:
    found = [advice([value]).recommended for value in (2.0**-120, 60000.0)]
    smallest, largest = ScaleSettings().bounds
    assert found == [largest, smallest]


def test_all_gradients_count() -> None:
    found = advice([2.0**-30, 2.0**-20], [1.0], [0.0])
    assert (found.lowest, found.highest) == (64.0, 2.0**15)


def test_scales_are_powers_of_two_away_from_the_measured_one() -> None:
    # At scale 3: 2^4 times 3 * 2^-30 is above 2^-25, and 2^14 times 3 below 65520;
    # floor(log2(65504 / 3)) is 14, less 3 of room.
    found = advice([3 * 2.0**-30, 3.0], measured_at=3.0)
    assert (found.lowest, found.highest, found.recommended) == (48.0, 49152.0, 6144.0)


def test_the_measured_scale_is_no_part_of_the_advice() -> None:
    at_one = advice([2.0**-30, 1.0])
    at_1024 = advice([2.0**-20, 1024.0], measured_at=1024.0)
    assert at_1024 == at_one


def test_shares_that_vanish_are_told_with_and_without_scaling() -> None:
    # At 2^15, 2^-45 still vanishes; at 1 so does 2^-26.
    found = advice([2.0**-45, 2.0**-26, 1.0], [2.0])
    shares = (found.recommended, found.underflow_fraction, found.unscaled_underflow_fraction)
    assert shares == (2.0**14, 0.25, 0.5)


def test_no_scale_serves_both_ends_of_a_range_wider_than_the_format() -> None:
    # 2^-25 to 65520 are 41 powers of two.
    found = [advice([2.0**-exponent, 1.0]).serves_both_ends for exponent in (39, 40)]
    assert found == [True, False]


def test_bfloat16_needs_no_scale() -> None:
    assert advice([2.0**-60, 2.0**60], precision="bfloat16").recommended == 1.0


@pytest.mark.parametrize("gradients", [(), ([],), ([0.0, -0.0],), ([math.nan, math.inf],)], ids=str)
def test_without_gradients_there_is_nothing_to_scale(gradients: Any) -> None:
    assert advice(*gradients) == ScaleAdvice(1.0, None, None, 0.0, 0.0)


def test_without_gradients_both_ends_are_served() -> None:
    assert advice().serves_both_ends


def test_nan_and_inf_are_left_out() -> None:
    assert advice([math.nan, math.inf, 2.0**-30, 1.0]) == advice([2.0**-30, 1.0])


def test_the_record_is_strict_json() -> None:
    assert json.loads(json.dumps(advice([2.0**-30, 1.0]).to_dict(), allow_nan=False)) == {
        "recommended": 4096.0,
        "lowest": 64.0,
        "highest": 32768.0,
        "underflow_fraction": 0.0,
        "unscaled_underflow_fraction": 0.5,
        "serves_both_ends": True,
    }
