"""The edges of the half formats, by hand."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.inspection.numerics.exponents import Judgement
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter

TOP = 2.0**128 - 2.0**119


def judge(*values: float, precision: str = "float16", shift: int = 0) -> Judgement:
    counter = StatisticsCounter(precision)
    counter.add(np.array(values, np.float32))
    return counter.freeze().judge(precision, shift)


def above(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(np.inf)))


def below(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(0)))


SIDES = [
    ("float16", 2.0**-25, "underflow"),
    ("float16", -(2.0**-25), "underflow"),
    ("float16", above(2.0**-25), "subnormal"),
    ("float16", 2.0**-24, "subnormal"),
    ("float16", below(2.0**-14 - 2.0**-25), "subnormal"),
    ("float16", 2.0**-14 - 2.0**-25, "normal"),
    ("float16", 2.0**-14, "normal"),
    ("float16", 65504.0, "normal"),
    ("float16", below(65520.0), "normal"),
    ("float16", 65520.0, "overflow"),
    ("float16", -65520.0, "overflow"),
    ("bfloat16", 2.0**-134, "underflow"),
    ("bfloat16", above(2.0**-134), "subnormal"),
    ("bfloat16", 2.0**-133, "subnormal"),
    ("bfloat16", below(2.0**-126 - 2.0**-134), "subnormal"),
    ("bfloat16", 2.0**-126 - 2.0**-134, "normal"),
    ("bfloat16", below(TOP), "normal"),
    ("bfloat16", TOP, "overflow"),
]


def fits_float32(value: float) -> bool:
    return abs(value) < 2.0**128 and float(np.float32(value)) == value


# A loss scale moves the edges by whole bins.
@pytest.mark.parametrize(
    ("precision", "value", "kind", "shift"),
    [
        (precision, value * 2.0**-shift, kind, shift)
        for precision, value, kind in SIDES
        for shift in (-5, 0, 7)
        if fits_float32(value * 2.0**-shift)
    ],
)
def test_each_value_is_on_its_side_of_the_edge(
    precision: str, value: float, kind: str, shift: int
) -> None:
    judgement = judge(value, precision=precision, shift=shift)
    kinds = {
        name: count
        for name in ("underflow", "subnormal", "overflow")
        if (count := getattr(judgement, f"num_{name}"))
    }
    assert kinds == ({} if kind == "normal" else {kind: 1})


def test_fractions_are_of_the_finite_elements_that_are_not_zero() -> None:
    judgement = judge(0, 0, np.nan, np.inf, 1e-9, 1e-6, 1e6, 1)
    fractions = (
        judgement.underflow_fraction,
        judgement.subnormal_fraction,
        judgement.overflow_fraction,
    )
    assert fractions == (0.25, 0.25, 0.25)


@pytest.mark.parametrize("values", [(), (0.0,), (np.nan, np.inf)])
def test_without_elements_the_fractions_are_zero(values: tuple[float, ...]) -> None:
    judgement = judge(*values)
    assert (judgement.underflow_fraction, judgement.overflow_fraction) == (0, 0)


@pytest.mark.parametrize(
    ("value", "shift", "headroom"),
    [(65504, 0, 0), (-32752, 0, 1), (-65504, 3, -3), (65504 / 4, -2, 4)],
)
def test_headroom_is_in_powers_of_two(value: float, shift: int, headroom: float) -> None:
    assert judge(value, 1e-3, shift=shift).headroom == headroom


def test_without_elements_the_headroom_has_no_end() -> None:
    assert judge(0, np.inf).headroom == math.inf


def test_one_record_is_judged_against_both_formats() -> None:
    counter = StatisticsCounter("float16")
    counter.add(np.array([1e-10, 1e-40], np.float32))
    record = counter.freeze()
    found = [record.judge(name).num_underflow for name in ("float16", "bfloat16")]
    assert found == [2, 0]


def test_a_shift_of_any_size_is_exact() -> None:
    judgement = judge(1.0, 2.0**-149, shift=10**6)
    assert (judgement.num_overflow, judgement.headroom < -(10**5)) == (2, True)


def test_a_shift_is_a_whole_number() -> None:
    with pytest.raises(TypeError):
        judge(1.0, shift=0.5)  # type: ignore[arg-type]


def test_aliases_of_a_precision_are_known() -> None:
    assert judge(1.0, precision="bf16").precision == "bfloat16"


def test_float32_is_not_judged() -> None:
    counter = StatisticsCounter("float16")
    with pytest.raises(PrecisionError, match=re.escape("Received: precision='float32'.")):
        counter.freeze().judge("float32")


@pytest.mark.parametrize("values", [(), (1.0, 1e-9)])
def test_a_judgement_is_strict_json(values: tuple[float, ...]) -> None:
    record = judge(*values).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
