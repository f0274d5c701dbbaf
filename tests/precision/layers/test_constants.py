"""The two constants, against the definitions of the formats."""

from __future__ import annotations

from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp

FORMATS = ("float16", "bfloat16", "float32", "float64")
by_format = pytest.mark.parametrize("dtype", FORMATS)

FLOAT16_SPELLINGS = [
    "float16",
    "fp16",
    "half",
    "mixed_float16",
    "FP16",
    np.float16,
    np.dtype("float16"),
    tf.float16,
    keras.DTypePolicy("mixed_float16"),
]
BFLOAT16_SPELLINGS = [
    "bf16",
    "bfloat16",
    ml_dtypes.bfloat16,
    np.dtype(ml_dtypes.bfloat16),
    tf.bfloat16,
    keras.DTypePolicy("mixed_bfloat16"),
]


def scalar(value: float, dtype: str) -> Any:
    return np.asarray(value).astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize(
    ("dtype", "mask", "epsilon"),
    [
        ("float16", -32752.0, 2.0**-14),
        ("bfloat16", -1.6947656946257677e38, 2.0**-126),
        ("float32", -1.7014117331926443e38, 2.0**-126),
        ("float64", -8.988465674311579e307, 2.0**-1022),
    ],
)
def test_the_constants_of_each_format(dtype: str, mask: float, epsilon: float) -> None:
    assert amp.safe_mask_value(dtype) == mask
    assert amp.safe_epsilon(dtype) == epsilon


@pytest.mark.parametrize("spelling", FLOAT16_SPELLINGS, ids=repr)
def test_float16_in_any_spelling(spelling: Any) -> None:
    assert amp.safe_mask_value(spelling) == -32752
    assert amp.safe_epsilon(spelling) == 2**-14


@pytest.mark.parametrize("spelling", BFLOAT16_SPELLINGS, ids=repr)
def test_bfloat16_in_any_spelling(spelling: Any) -> None:
    assert amp.safe_epsilon(spelling) == 2**-126


@pytest.mark.parametrize("dtype", ["int32", np.int32, tf.bool, "float8", None, 16])
@pytest.mark.parametrize("function", [amp.safe_mask_value, amp.safe_epsilon])
def test_what_is_no_float_dtype_is_refused(function: Any, dtype: Any) -> None:
    with pytest.raises(amp.errors.PrecisionError, match=r"Unknown precision.*Received: dtype="):
        function(dtype)


@by_format
@pytest.mark.parametrize("value", [amp.safe_mask_value, amp.safe_epsilon])
def test_a_constant_is_exact_in_its_format(value: Any, dtype: str) -> None:
    assert float(scalar(value(dtype), dtype)) == value(dtype)


@by_format
def test_a_mask_is_finite_with_a_score_or_another_mask(dtype: str) -> None:
    mask = scalar(amp.safe_mask_value(dtype), dtype)
    assert np.isfinite(float(mask + mask))
    assert np.isfinite(float(mask + scalar(-30000, dtype)))


@pytest.mark.parametrize("dtype", FORMATS[:3])
def test_a_masked_row_gives_no_nan_and_a_masked_score_no_weight(dtype: str) -> None:
    mask = amp.safe_mask_value(dtype)
    scores = tf.constant([[3, -100, 5], [3, -100, 5]], dtype)
    weights = keras.ops.softmax(scores + tf.constant([[0, 0, mask], [mask] * 3], dtype))
    found = tf.cast(weights, "float32").numpy()
    assert np.isfinite(found).all()
    assert found[0].tolist() == [1, 0, 0]


def test_the_classic_mask_gives_nan_in_float16() -> None:
    scores = tf.constant([[3, 5]], "float16") + tf.constant(-1e9, "float16")
    assert np.isnan(keras.ops.softmax(scores)).all()


@by_format
def test_an_epsilon_and_its_reciprocal_are_in_the_format(dtype: str) -> None:
    epsilon = scalar(amp.safe_epsilon(dtype), dtype)
    assert epsilon > 0
    assert np.isfinite(float(scalar(1, dtype) / epsilon))


@pytest.mark.parametrize("dtype", FORMATS[:3])
def test_zero_by_zero_is_zero_with_the_epsilon(dtype: str) -> None:
    x = tf.zeros((3,), dtype)
    found = x / (tf.norm(x) + tf.constant(amp.safe_epsilon(dtype), dtype))
    assert tf.cast(found, "float32").numpy().tolist() == [0, 0, 0]


@by_format
def test_next_to_one_an_epsilon_is_lost(dtype: str) -> None:
    assert float(scalar(1, dtype) - scalar(amp.safe_epsilon(dtype), dtype)) == 1
