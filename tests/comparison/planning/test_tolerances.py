"""How far half precision may be off: checks of what is asked for, and the defaults."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tf_amp_kit.comparison.planning.record.parts import BatchDifference
from tf_amp_kit.comparison.planning.tolerances import (
    METRICS,
    checked_metric,
    checked_tolerance,
    default_tolerance,
    rounding_error,
)
from tf_amp_kit.errors import PrecisionError

BATCHES = BatchDifference(loss=0.4, gradient=1.5, gradient_cosine=0.1)


@pytest.mark.parametrize("metric", METRICS)
def test_known_metrics_are_taken(metric):
    assert checked_metric(metric) == metric


@pytest.mark.parametrize("metric", ["accuracy", None, "Output", 1])
def test_other_metrics_are_refused(metric):
    message = (
        f"Unknown metric. Expected one of ('output', 'loss', 'gradient'). Received: {metric!r}."
    )
    with pytest.raises(PrecisionError, match=f"^{re.escape(message)}$"):
        checked_metric(metric)


@pytest.mark.parametrize("tolerance", [0.25, 2, Fraction(1, 4), np.float32(0.25), np.int64(3)])
def test_positive_numbers_of_every_kind_become_floats(tolerance):
    found = checked_tolerance(tolerance)
    assert (type(found), found) == (float, float(tolerance))


@pytest.mark.parametrize(
    "tolerance", [0, 0.0, -1e-3, math.inf, math.nan, True, None, "0.1", [0.1], 1j]
)
def test_what_is_no_positive_finite_number_is_refused(tolerance):
    message = (
        f"Expected a relative error above 0, 0.001 for example. Received: tolerance={tolerance!r}."
    )
    with pytest.raises(PrecisionError, match=f"^{re.escape(message)}$"):
        checked_tolerance(tolerance)


@pytest.mark.parametrize(("half", "expected"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_a_quiet_model_has_the_format_s_tolerance(half, expected):
    assert default_tolerance("output", half, 0.0, None) == expected


@pytest.mark.parametrize(
    ("half", "noise", "expected"),
    [("float16", 1e-4, 2e-3), ("float16", 1e-3, 1e-2), ("bfloat16", 1e-3, 2e-2)],
)
def test_ten_times_the_noise_is_allowed_where_that_is_more(half, noise, expected):
    assert default_tolerance("output", half, noise, None) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("metric", "expected"), [("output", 2e-3), ("loss", 0.04), ("gradient", 0.15)]
)
def test_loss_and_gradient_may_differ_by_a_tenth_of_what_batches_do(metric, expected):
    assert default_tolerance(metric, "float16", 0.0, BATCHES) == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["loss", "gradient"])
def test_batches_that_hardly_differ_do_not_lower_a_tolerance(metric):
    alike = BatchDifference(1e-6, 1e-6, 1.0)
    assert default_tolerance(metric, "float16", 0.0, alike) == 2e-3


@pytest.mark.parametrize("metric", ["loss", "gradient"])
@pytest.mark.parametrize("difference", [math.inf, math.nan])
def test_batches_that_differ_without_bound_do_not_count(metric, difference):
    between = BatchDifference(difference, difference, math.nan)
    assert default_tolerance(metric, "float16", 0.0, between) == 2e-3


@pytest.mark.parametrize("metric", ["loss", "gradient"])
def test_a_single_batch_leaves_the_format_s_tolerance(metric):
    assert default_tolerance(metric, "bfloat16", 0.0, None) == 2e-2


@pytest.mark.parametrize(
    ("half", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)]
)
def test_the_rounding_error_is_that_of_numbers_that_are_really_rounded(half, dtype):
    numbers = 2 ** (np.arange(100_000) / 100_000)
    rounded = numbers.astype(np.float32).astype(dtype).astype(np.float64)
    measured = math.sqrt(np.mean(((rounded - numbers) / numbers) ** 2))
    assert rounding_error(half) == pytest.approx(measured, rel=0.01)
