"""Student's t distribution."""

from __future__ import annotations

import math

import pytest

from tf_amp_kit.comparison.training.student import student_t


@pytest.mark.parametrize(
    ("degrees", "value"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (20, 2.086), (60, 2.000), (100, 1.984)],
)
def test_it_is_that_of_the_tables(degrees: int, value: float) -> None:
    assert student_t(degrees, 0.05) == pytest.approx(value, abs=5e-4)


@pytest.mark.parametrize("rate", [0.5, 0.05, 0.001])
def test_with_one_and_two_degrees_of_freedom_it_is_that_of_the_formulas(rate: float) -> None:
    assert student_t(1, rate) == pytest.approx(1 / math.tan(math.pi * rate / 2), rel=1e-9)
    inside = 1 - rate
    assert student_t(2, rate) == pytest.approx(inside * math.sqrt(2 / (1 - inside**2)), rel=1e-9)


def test_without_degrees_of_freedom_nothing_is_known() -> None:
    assert student_t(0, 0.05) == math.inf


def test_it_never_rises_with_more_degrees_of_freedom() -> None:
    values = [student_t(degrees, 0.05) for degrees in range(1, 60)]
    assert values == sorted(values, reverse=True)
