"""Operands measured by hand."""

import json
import math

import ml_dtypes
import numpy as np
import pytest

from tf_amp_kit.inspection.nonfinite.numbers import (
    apart,
    log_overflow_limit,
    number,
    overflow_limit,
)
from tf_amp_kit.inspection.nonfinite.operand import Operand

VALUES = [-3.0, 0.0, -0.0, 0.5, np.nan, np.inf, -np.inf, -np.inf]


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float32", "float64"])
def test_an_operand_has_the_range_of_its_finite_elements(dtype):
    operand = Operand.of(np.array(VALUES, dtype).reshape(2, 4))
    assert operand == Operand(
        dtype=np.dtype(dtype).name,
        shape=(2, 4),
        minimum=-3.0,
        maximum=0.5,
        smallest=0.5,
        num_elements=8,
        num_zeros=2,
        num_nan=1,
        num_infinite=3,
        num_positive_infinite=1,
    )


@pytest.mark.parametrize(("dtype", "name"), [("int32", "int32"), ("uint8", "uint8")])
def test_integers_are_measured_too(dtype, name):
    operand = Operand.of(np.array([0, 3, 200], dtype))
    assert (operand.dtype, operand.minimum, operand.maximum) == (name, 0.0, 200.0)


def test_truth_values_count_as_zero_and_one():
    operand = Operand.of(np.array([True, False]))
    assert (operand.minimum, operand.maximum, operand.num_zeros) == (0.0, 1.0, 1)


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.array([b"a", b"b"], object)])
def test_text_has_no_range(array):
    operand = Operand.of(array)
    assert operand.num_elements == 2 and math.isnan(operand.largest)


def test_complex_numbers_count_as_nan_or_infinite():
    operand = Operand.of(np.array([complex(np.nan, 1), complex(0, np.inf), 1], "complex64"))
    assert (operand.num_nan, operand.num_infinite, operand.num_elements) == (1, 1, 3)


def test_the_largest_magnitude_may_be_negative():
    assert Operand.of(np.array([-7.0, 2.0])).largest == 7.0


def test_subnormal_values_of_float32_are_not_zero():
    assert Operand.of(np.array([1e-45], "float32")).smallest == 2.0**-149


def test_measuring_leaves_the_array_as_it_was():
    array = np.array(VALUES)
    array.setflags(write=False)
    assert Operand.of(array[::2]).num_elements == 4


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([[-3.2, 12.4]], "float32 (1, 2): -3.2 to 12.4"),
        ([], "float32 (0,): no elements"),
        ([np.inf, np.nan], "float32 (2,): no finite numbers, 1 NaN, 1 infinite"),
        (1.0, "float32 (): 1 to 1"),
        ([65520.0, 1e9], "float32 (2,): 65520 to 1e+09"),
    ],
)
def test_an_operand_prints_its_range(values, text):
    assert str(Operand.of(np.array(values, "float32"))) == text


@pytest.mark.parametrize("values", [[], [np.nan], [np.inf, 1.0]])
def test_a_dictionary_is_strict_json(values):
    fields = Operand.of(np.array(values), constant=-math.inf).to_dict()
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [("float16", 65520.0), ("bfloat16", 2.0**128 - 2.0**119), ("float32", 2.0**128 - 2.0**103)],
)
def test_overflow_starts_half_a_step_above_the_largest(dtype, limit):
    assert overflow_limit(dtype) == limit


def test_the_logarithm_of_float64_s_limit_is_finite():
    # 2^1024 - 2^970, whose logarithm is that of 2^1024 in 15 digits.
    assert log_overflow_limit("float64") == pytest.approx(1024 * math.log(2), rel=1e-14)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (65520.0, "65520"),
        (12.3984375, "12.4"),
        (-1e9, "-1e+09"),
        (200000, "200000"),
        (1e-8, "1e-08"),
        (-0.0, "0"),
        (123456.7, "123457"),
        (1e6, "1e+06"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_digits_and_whole_ones_all(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("pair", "texts"),
    [
        ((12.4, 11.0901), ("12.4", "11.09")),
        ((11.09375, 11.0901), ("11.094", "11.09")),
        ((65520.25, 65520.0), ("65520.2", "65520")),
        ((2.0, 2.0), ("2", "2")),
    ],
)
def test_a_value_and_its_limit_never_look_the_same(pair, texts):
    assert apart(*pair) == texts
