"""Whatever the elements are, the counts are those of plain float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.inspection.numerics import reference
from tf_amp_kit.formats import HALF_PRECISIONS
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter, TensorStatistics

any_pattern = st.integers(0, 2**32 - 1).map(lambda bits: float(np.uint32(bits).view(np.float32)))
edge = st.sampled_from([float(value) for value in reference.EDGES])
ordinary = st.floats(-1e5, 1e5, width=32)
element = st.one_of(edge, edge, ordinary, any_pattern)
arrays = st.lists(element, max_size=40).map(lambda values: np.array(values, np.float32))
precisions = st.sampled_from(HALF_PRECISIONS)
shifts = st.integers(-40, 40) | st.integers(-300, 300)

EXACT = tuple(reference.exact_facts(np.zeros(0, np.float32)))

quick = settings(max_examples=150, deadline=None)


def statistics_of(*batches: Any, precision: str = "float16") -> TensorStatistics:
    counter = StatisticsCounter(precision)
    for values in batches:
        counter.add(values)
    return counter.freeze()


def exact_part(statistics: TensorStatistics) -> dict[str, Any]:
    return {name: statistics.to_dict()[name] for name in EXACT}


def counts(statistics: TensorStatistics, precision: str, shift: int) -> tuple[int, int, int]:
    judgement = statistics.judge(precision, shift)
    return judgement.num_underflow, judgement.num_subnormal, judgement.num_overflow


@pytest.mark.parametrize("precision", HALF_PRECISIONS)
def test_the_reference_rounds_as_the_cast_does(precision: str) -> None:
    values = np.concatenate([reference.EDGES, reference.random_patterns(100_000)])
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        cast = values.astype(getattr(ml_dtypes, precision, precision)).astype(np.float64)
    np.testing.assert_array_equal(reference.rounded(values.astype(np.float64), precision), cast)


@quick
@given(arrays)
def test_counts_and_extremes_are_exact(values: NDArray[np.float32]) -> None:
    assert exact_part(statistics_of(values)) == reference.exact_facts(values)


@quick
@given(arrays, precisions, shifts)
def test_a_judgement_counts_as_rounding_does(
    values: NDArray[np.float32], precision: str, shift: int
) -> None:
    expected = reference.judged(values, precision, shift)
    assert counts(statistics_of(values), precision, shift) == expected


@quick
@given(arrays, precisions)
def test_the_rounding_error_is_that_of_rounding(
    values: NDArray[np.float32], precision: str
) -> None:
    expected = reference.rounding_error(values, precision)
    error = statistics_of(values, precision=precision).rounding_error
    assert error == pytest.approx(expected, rel=1e-12, abs=0)


@quick
@given(st.lists(arrays, max_size=4), precisions)
def test_batches_count_as_one_array(batches: list[NDArray[np.float32]], precision: str) -> None:
    together = np.concatenate([*batches, np.zeros(0, np.float32)])
    assert exact_part(statistics_of(*batches)) == exact_part(statistics_of(together))


@quick
@given(arrays, arrays, precisions, shifts)
def test_merged_counters_judge_as_one(
    first: NDArray[np.float32], second: NDArray[np.float32], precision: str, shift: int
) -> None:
    counter, other = StatisticsCounter(precision), StatisticsCounter(precision)
    counter.add(first)
    other.add(second)
    counter.merge(other)
    expected = reference.judged(np.concatenate([first, second]), precision, shift)
    assert counts(counter.freeze(), precision, shift) == expected


@pytest.mark.parametrize("precision", HALF_PRECISIONS)
@pytest.mark.parametrize("shift", [-150, -20, -1, 0, 1, 15, 150])
def test_many_chunks_of_any_patterns_are_judged_exactly(precision: str, shift: int) -> None:
    values = np.concatenate([reference.random_patterns(150_000), reference.EDGES])
    expected = reference.judged(values, precision, shift)
    assert counts(statistics_of(values), precision, shift) == expected


@pytest.mark.parametrize("precision", HALF_PRECISIONS)
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-7, 1e-30, 1e-36, 1e-41, 3e4, 1e34])
@pytest.mark.parametrize("least", [-np.inf, 0.0])
def test_the_rounding_error_of_many_elements_is_exact(
    precision: str, scale: float, least: float
) -> None:
    noise = np.random.default_rng(0).standard_normal(70_000)
    values = np.maximum(noise * scale, least).astype(np.float32)
    expected = reference.rounding_error(values, precision)
    error = statistics_of(values, precision=precision).rounding_error
    assert error == pytest.approx(expected, rel=1e-12, abs=0)
