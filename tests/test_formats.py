"""Expected values are IEEE 754's and the bfloat16 definition's, or worked out by hand."""

import re

import numpy as np
import pytest

from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.formats import (
    HALF_PRECISIONS,
    format_of,
    is_float,
    is_half,
    parse_precision,
    round_trip,
    width,
)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [("float16", (5, 10)), ("bfloat16", (8, 7)), ("float32", (8, 23)), ("float64", (11, 52))],
)
def test_each_format_splits_its_bits_as_its_definition_says(dtype, bits):
    form = format_of(dtype)
    assert (form.exponent_bits, form.mantissa_bits) == bits


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        ("float16", 65504.0),
        ("bfloat16", 3.3895313892515355e38),
        ("float32", 3.4028234663852886e38),
    ],
)
def test_the_largest_finite_value_is_the_standards(dtype, largest):
    assert format_of(dtype).largest == largest


@pytest.mark.parametrize(
    ("dtype", "smallest_normal", "smallest_subnormal"),
    [
        ("float16", 2.0**-14, 2.0**-24),
        ("bfloat16", 2.0**-126, 2.0**-133),
        ("float32", 2.0**-126, 2.0**-149),
    ],
)
def test_the_smallest_values_are_the_standards(dtype, smallest_normal, smallest_subnormal):
    form = format_of(dtype)
    assert (form.smallest_normal, form.smallest_subnormal) == (smallest_normal, smallest_subnormal)


@pytest.mark.parametrize(
    ("dtype", "epsilon"), [("float16", 2.0**-10), ("bfloat16", 2.0**-7), ("float32", 2.0**-23)]
)
def test_epsilon_is_the_gap_above_one(dtype, epsilon):
    assert format_of(dtype).epsilon == epsilon


@pytest.mark.parametrize(
    ("dtype", "integer"), [("float16", 2048), ("bfloat16", 256), ("float32", 16777216)]
)
def test_one_more_than_the_largest_exact_integer_is_lost(dtype, integer):
    form = format_of(dtype)
    assert (form.largest_exact_integer, round_trip(integer + 1, dtype)) == (integer, integer)


def test_overflow_starts_half_a_step_above_the_largest():
    values = round_trip([65519.996, 65520.0, -65520.0], "float16")
    np.testing.assert_array_equal(values, [65504.0, np.inf, -np.inf])


def test_a_tie_between_zero_and_the_smallest_subnormal_goes_to_zero():
    # The next float32 above 2^-25 is 2^-25 + 2^-48.
    values = round_trip([2.0**-25, 2.0**-25 + 2.0**-48, -(2.0**-25)], "float16")
    np.testing.assert_array_equal(values, [0.0, 2.0**-24, 0.0])


def test_a_small_value_survives_in_float16_as_a_subnormal():
    # 1e-5 is 167.77 steps of 2^-24.
    assert round_trip(1e-5, "float16") == 168 * 2.0**-24


def test_the_epsilon_of_many_layers_underflows_in_float16_only():
    values = [float(round_trip(1e-8, dtype)) for dtype in HALF_PRECISIONS]
    assert values[0] == 0.0 < values[1]


def test_bfloat16_ties_round_to_even():
    # Halfway between 1 and 1 + 2^-7, and between 1 + 2^-7 and 1 + 2^-6.
    values = round_trip([1 + 2.0**-8, 1 + 3 * 2.0**-8], "bfloat16")
    np.testing.assert_array_equal(values, [1.0, 1 + 2.0**-6])


def test_values_pass_through_float32_as_in_tensorflow():
    # 65519.999 lies nearer to 65504 than float16's limit of 65520, but float32
    # has no value between 65519.996 and 65520.
    assert round_trip(65519.999, "float16") == np.inf


def test_rounding_to_float64_changes_nothing():
    np.testing.assert_array_equal(round_trip([0.1, 1e300], "float64"), [0.1, 1e300])


def test_nan_and_infinity_survive_the_round_trip():
    np.testing.assert_array_equal(round_trip([np.nan, -np.inf], "bfloat16"), [np.nan, -np.inf])


@pytest.mark.parametrize("dtype", HALF_PRECISIONS)
def test_the_round_trip_ignores_the_users_numpy_error_state(dtype):
    with np.errstate(all="raise"):
        values = round_trip([1e-45, 1e39, np.nan], dtype)
    np.testing.assert_array_equal(values, [0.0, np.inf, np.nan])


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_the_round_trip_keeps_the_shape_and_returns_float64(shape):
    values = round_trip(np.ones(shape, np.float32), "bfloat16")
    assert (values.shape, values.dtype) == (shape, np.float64)


@pytest.mark.parametrize(
    ("spelling", "precision"),
    [
        ("bf16", "bfloat16"),
        ("BF16", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("mixed_bfloat16", "bfloat16"),
        ("fp16", "float16"),
        ("half", "float16"),
        ("mixed_float16", "float16"),
        ("fp32", "float32"),
        ("float32", "float32"),
    ],
)
def test_every_spelling_of_a_precision_is_parsed(spelling, precision):
    assert parse_precision(spelling) == precision


def test_an_unknown_precision_is_refused_with_the_accepted_spellings():
    message = (
        "Unknown precision. Expected one of ['bf16', 'bfloat16', 'float16', 'float32', 'fp16', "
        "'fp32', 'half', 'mixed_bfloat16', 'mixed_float16']. Received: name='bf17'. "
        "For 8-bit formats use Keras's `model.quantize()`."
    )
    with pytest.raises(PrecisionError, match=f"^{re.escape(message)}$"):
        parse_precision("bf17")


@pytest.mark.parametrize("value", [None, 16, ["bf16"], "float64", ""])
def test_what_is_no_precision_is_refused_under_the_arguments_name(value):
    with pytest.raises(ValueError, match=re.escape(f"Received: precision={value!r}.")):
        parse_precision(value, argument="precision")


@pytest.mark.parametrize(
    ("dtype", "facts"),
    [
        ("float16", (True, True, 16)),
        ("bfloat16", (True, True, 16)),
        ("float32", (False, True, 32)),
        ("float64", (False, True, 64)),
        ("int32", (False, False, 0)),
        ("string", (False, False, 0)),
    ],
)
def test_a_dtype_is_known_as_half_as_float_and_by_its_bits(dtype, facts):
    assert (is_half(dtype), is_float(dtype), width(dtype)) == facts
