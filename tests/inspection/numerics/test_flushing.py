"""TensorFlow's own threads take subnormals for zeros, and the statistics do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests.inspection.numerics import reference
from tf_amp_kit.formats import HALF_PRECISIONS
from tf_amp_kit.inspection.numerics.rounding import flushes_subnormals
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter


def in_thread_of_tensorflow(patterns: NDArray[np.uint32], precision: str) -> dict[str, Any]:
    """Gives the record of what a graph hands to NumPy, as bits that no one flushes."""
    records = []

    def observe(bits: NDArray[np.uint32]) -> Any:
        if not flushes_subnormals():
            pytest.skip("this TensorFlow does not flush subnormals here")
        counter = StatisticsCounter(precision)
        counter.add(bits.view(np.float32))
        records.append(counter.freeze().to_dict())
        return np.float32(0)

    @tf.function  # type: ignore[untyped-decorator]
    def graph(bits: Any) -> Any:
        return tf.numpy_function(observe, [bits], tf.float32)

    graph(tf.constant(patterns))
    return records[0]


@pytest.mark.parametrize("precision", HALF_PRECISIONS)
@pytest.mark.parametrize("scale", [1e-41, 1e-37, 1e-31, 1e-4, 1e34])
def test_a_thread_that_flushes_subnormals_counts_the_same(precision: str, scale: float) -> None:
    noise = np.random.default_rng(0).standard_normal(40_000)
    values = np.concatenate([(noise * scale).astype(np.float32), reference.EDGES])
    counter = StatisticsCounter(precision)
    counter.add(values)
    found = in_thread_of_tensorflow(values.view(np.uint32), precision)
    assert found == counter.freeze().to_dict()


@pytest.mark.parametrize("precision", HALF_PRECISIONS)
def test_subnormals_alone_have_their_rounding_error_there(precision: str) -> None:
    values = (np.random.default_rng(0).standard_normal(3000) * 1e-40).astype(np.float32)
    found = in_thread_of_tensorflow(values.view(np.uint32), precision)
    expected = reference.rounding_error(values, precision)
    assert found["rounding_error"] == pytest.approx(expected, rel=1e-12)
