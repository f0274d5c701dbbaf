"""Statistics of small arrays, worked out by hand."""

from __future__ import annotations

import json
import math
import re
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.inspection.numerics import reference
from tf_amp_kit.errors import InputsError, PrecisionError
from tf_amp_kit.formats import HALF_PRECISIONS, round_trip
from tf_amp_kit.inspection.numerics.chunks import float32_chunks
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter, TensorStatistics


def statistics_of(values: Any, precision: str = "float16") -> TensorStatistics:
    counter = StatisticsCounter(precision)
    counter.add(values)
    return counter.freeze()


def float32(*values: float) -> Any:
    return np.array(values, np.float32)


def test_each_kind_of_element_is_counted_once() -> None:
    record = statistics_of(float32(0, -0.0, 1, -2, np.inf, -np.inf, -np.inf, np.nan))
    found = (record.num_elements, record.num_zeros, record.num_infinite, record.num_nan)
    assert found == (8, 2, 3, 1)


def test_a_nan_of_either_sign_is_one() -> None:
    assert statistics_of(np.copysign(float32(np.nan, np.nan), float32(1, -1))).num_nan == 2


@pytest.mark.parametrize(
    ("values", "extremes"),
    [
        ((3, -5, 0), (-5, 3)),
        ((3, 5), (3, 5)),
        ((-3, -5), (-5, -3)),
        ((-0.0, -5), (-5, 0)),
        ((0, 5), (0, 5)),
        ((-0.0,), (0, 0)),
        ((np.inf, 2, -np.inf), (2, 2)),
        ((np.nan, -2), (-2, -2)),
    ],
)
def test_extremes_are_of_the_finite_elements(values: Any, extremes: Any) -> None:
    record = statistics_of(float32(*values))
    assert (record.minimum, record.maximum) == extremes


def test_magnitudes_leave_zeros_and_signs_out() -> None:
    record = statistics_of(float32(0, -0.25, 0.5, -8, 4))
    assert (record.smallest_nonzero, record.largest) == (0.25, 8)


@pytest.mark.parametrize(
    "name", ["minimum", "maximum", "smallest_nonzero", "largest", "mean", "rms"]
)
@pytest.mark.parametrize("values", [(), (np.nan, np.inf)])
def test_without_finite_elements_there_are_no_values(name: str, values: Any) -> None:
    assert math.isnan(getattr(statistics_of(float32(*values)), name))


def test_zeros_have_a_mean_and_no_magnitude() -> None:
    record = statistics_of(np.zeros((4, 5), np.float32))
    assert (record.mean, record.rms, math.isnan(record.largest)) == (0, 0, True)


def test_mean_and_rms_are_of_the_finite_elements() -> None:
    record = statistics_of(float32(1, -7, 5, 5, np.nan, np.inf))
    assert (record.mean, record.rms) == (1, 5)


@pytest.mark.parametrize("size", [1e-30, 1e30, 2.0**-149])
def test_squares_neither_vanish_nor_overflow(size: float) -> None:
    values = np.full(1000, size, np.float32)
    assert statistics_of(values).rms == pytest.approx(float(values[0]), rel=1e-14)


def test_a_small_mean_of_large_elements_is_kept() -> None:
    # Each pair sums to 2^-10, and 2^20 in between would lose it in float32.
    values = np.tile(float32(2.0**20, -(2.0**20), 2.0**-10), 30_000)
    assert statistics_of(values).mean == pytest.approx(2.0**-10 / 3, rel=1e-12)


def test_batches_have_the_mean_and_rms_of_one_array() -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    counter = StatisticsCounter("float16")
    for batch in np.split(values, [1, 17, 70_000, 150_001]):
        counter.add(batch)
    together, record = statistics_of(values), counter.freeze()
    assert (record.mean, record.rms) == pytest.approx((together.mean, together.rms), rel=1e-12)


def test_merged_counters_have_the_mean_and_rms_of_one() -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    counter, other = StatisticsCounter("float16"), StatisticsCounter("float16")
    counter.add(values[:70_000])
    other.add(values[70_000:])
    counter.merge(other)
    together, record = statistics_of(values), counter.freeze()
    assert (record.mean, record.rms) == pytest.approx((together.mean, together.rms), rel=1e-12)


def test_merging_keeps_what_an_addition_would_round_away() -> None:
    counter, other = StatisticsCounter("float16"), StatisticsCounter("float16")
    other.add(float32(2.0**100))
    other.add(float32(1))
    counter.merge(other)
    counter.add(float32(-(2.0**100)))
    assert counter.freeze().mean == 1 / 3


@pytest.mark.parametrize("layout", [np.s_[::2], np.s_[::-1]])
def test_pieces_of_a_strided_array_are_contiguous(layout: slice) -> None:
    pieces = float32_chunks(np.zeros(200_000, np.float32)[layout])
    assert all(piece.flags.c_contiguous for piece in pieces)


def test_merging_leaves_the_other_counter_alone() -> None:
    counter, other = StatisticsCounter("float16"), StatisticsCounter("float16")
    other.add(reference.EDGES)
    before = other.freeze().to_dict()
    counter.merge(other)
    counter.add(float32(1, 2, 3))
    assert other.freeze().to_dict() == before


def test_a_record_does_not_change_with_its_counter() -> None:
    counter = StatisticsCounter("float16")
    counter.add(float32(1, 2))
    record = counter.freeze()
    counter.add(float32(1, 2))
    assert (record.num_elements, record.exponent_counts) == (2, {0: 1, 1: 1})


def test_a_bin_is_one_power_of_two() -> None:
    below_two = np.nextafter(np.float32(2), np.float32(0))
    record = statistics_of(float32(1, -1.5, below_two, 2, 0, 0.75, np.inf))
    assert record.exponent_counts == {-1: 1, 0: 3, 1: 1}


def test_each_subnormal_is_in_its_true_bin() -> None:
    values = np.ldexp(1.0, np.arange(-149, -120)).astype(np.float32)
    assert statistics_of(values).exponent_counts == dict.fromkeys(range(-149, -120), 1)


@pytest.mark.parametrize(
    ("precision", "value", "error"),
    [
        # One more than what the mantissa holds, by half a step; exact; vanished.
        ("float16", 1 + 2.0**-11, 2.0**-11 / (1 + 2.0**-11)),
        ("float16", 3.0, 0.0),
        ("float16", 2.0**-25, 1.0),
        ("float16", 1.5 * 2.0**-24, 1 / 3),
        ("float16", 65519.996, 15.99609375 / 65519.99609375),
        ("bfloat16", 257.0, 1 / 257),
        ("bfloat16", 2.0**-134, 1.0),
        ("bfloat16", 1.5 * 2.0**-133, 1 / 3),
    ],
)
def test_the_rounding_error_is_relative(precision: str, value: float, error: float) -> None:
    assert statistics_of(float32(value, 0), precision).rounding_error == pytest.approx(error)


@pytest.mark.parametrize("precision", HALF_PRECISIONS)
def test_the_rounding_error_is_that_of_a_round_trip(precision: str) -> None:
    values = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    error = round_trip(values, precision) - values
    expected = np.sqrt(np.sum(error**2) / np.sum(values.astype(np.float64) ** 2))
    assert statistics_of(values, precision).rounding_error == pytest.approx(expected, rel=1e-12)


def test_what_overflows_has_no_rounding_error() -> None:
    # 65504 and 1 are exact, and 1e5 is not in the average.
    assert statistics_of(float32(1e5, 65504, 1)).rounding_error == 0


@pytest.mark.parametrize("values", [(), (0, 0), (np.inf, np.nan), (1e5, 0)])
def test_nothing_to_round_has_no_rounding_error(values: Any) -> None:
    assert statistics_of(float32(*values)).rounding_error == 0


VALUES = np.concatenate([reference.EDGES, reference.random_patterns(80_000)])


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(VALUES[::-1], id="reversed"),
        pytest.param(np.repeat(VALUES, 2)[::2], id="strided"),
        pytest.param(VALUES[:80_000].reshape(2, 200, 200).transpose(2, 0, 1), id="transposed"),
        pytest.param(VALUES[:80_000].reshape(200, 400)[3:150, 7:300], id="a window"),
        pytest.param(np.broadcast_to(VALUES[:300, None], (300, 200)), id="broadcast"),
        pytest.param(VALUES.astype(">f4"), id="big-endian"),
        pytest.param(
            np.frombuffer(b"x" + VALUES.tobytes(), np.uint8)[1:].view(np.float32), id="unaligned"
        ),
        pytest.param(VALUES[7], id="a scalar"),
        pytest.param(VALUES[7:8].reshape(()), id="no dimension"),
        pytest.param(np.zeros((3, 0, 2), np.float32), id="empty"),
        pytest.param(np.zeros((0, 4), np.float32).T, id="empty and transposed"),
    ],
)
def test_the_layout_makes_no_difference(layout: Any) -> None:
    flat = np.ascontiguousarray(layout, np.float32).ravel()
    found = statistics_of(layout).to_dict()
    facts = reference.exact_facts(flat)
    assert {name: found[name] for name in facts} == facts


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("step", [1, 2])
def test_other_floats_are_cast_first(dtype: Any, step: int) -> None:
    with np.errstate(all="ignore"):
        values = VALUES.astype(dtype)[::step]
        flat = values.astype(np.float32)
    facts = reference.exact_facts(flat)
    found = statistics_of(values).to_dict()
    assert {name: found[name] for name in facts} == facts


def test_a_float64_beyond_float32_is_infinite() -> None:
    record = statistics_of(np.array([1e39, -1e300, 1.0]))
    assert (record.num_infinite, record.largest) == (2, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_the_array_stays_as_it_is(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        values = VALUES.astype(dtype)
    before = values.tobytes()
    statistics_of(values)
    assert values.tobytes() == before


def test_a_read_only_array_will_do() -> None:
    values = float32(1, 2)
    values.flags.writeable = False
    assert statistics_of(values).num_elements == 2


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_only_floats_are_taken(dtype: str) -> None:
    message = f"Received: an array of dtype {dtype}."
    with pytest.raises(InputsError, match=re.escape(message)):
        statistics_of(np.zeros(3, dtype))


def test_only_a_half_format_is_judged_against() -> None:
    with pytest.raises(PrecisionError, match=re.escape("Received: precision='float32'.")):
        StatisticsCounter("float32")


def test_counters_of_two_precisions_do_not_merge() -> None:
    message = "Received: 'bfloat16' to be merged into 'float16'."
    with pytest.raises(ValueError, match=re.escape(message)):
        StatisticsCounter("float16").merge(StatisticsCounter("bfloat16"))


@pytest.mark.parametrize("values", [(), (np.inf, np.nan), (0, 1e-40, 3e38, np.nan)])
def test_a_record_is_strict_json(values: Any) -> None:
    record = statistics_of(float32(*values)).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_threads_do_not_disturb_each_other() -> None:
    arrays = [reference.random_patterns(300_000, seed) for seed in range(4)]
    counters = [StatisticsCounter("float16") for _ in arrays]
    threads = [
        threading.Thread(target=counter.add, args=(values,))
        for counter, values in zip(counters, arrays, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [counter.freeze().to_dict() for counter in counters]
    assert found == [statistics_of(values).to_dict() for values in arrays]
