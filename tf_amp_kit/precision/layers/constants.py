"""The two classic constants: large enough, small enough, and still in the format."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit.formats import format_of, parse_precision

__all__ = ["safe_epsilon", "safe_mask_value"]


def safe_mask_value(dtype: Any) -> float:
    """Returns the large negative number for additive masks in a dtype.

    The classic `-1e9` is minus infinity in float16, and a row that is masked as
    a whole then becomes NaN. This is half of the lowest finite number: it stays
    finite when a score is added to it, down to minus the same number, and when
    two masks are added. Its `exp` is zero next to every score that is not masked.

    Args:
        dtype: The dtype of the scores: a precision in any spelling, a dtype of
            Keras, TensorFlow or NumPy, or a Keras dtype policy, which stands for
            its compute dtype.

    Returns:
        A Python float, exact in `dtype`.

    Raises:
        PrecisionError: If `dtype` is none of these.

    Example:

    >>> safe_mask_value("float16")
    -32752.0
    >>> scores = keras.ops.array([[3, 4]], "float16") + safe_mask_value("float16")
    >>> keras.ops.softmax(scores).numpy().tolist()
    [[0.5, 0.5]]
    """
    return -format_of(_parse(dtype)).largest / 2


def safe_epsilon(dtype: Any) -> float:
    """Returns the smallest epsilon for a divisor in a dtype, as in `x / (norm + epsilon)`.

    The classic `1e-8` is zero in float16. This is the smallest normal number:
    smaller ones are zero on devices that flush subnormals, and in float16 their
    reciprocal soon overflows.

    It is for divisors and logarithms, `log(p + epsilon)`. Next to 1 it is lost, as
    `1 - epsilon` is 1: for `log(1 - p)` compute in float32, best from the logits.
    Inside a root, as in `sqrt(variance + epsilon)`, it is rather small: its
    gradient there is up to `0.5 / sqrt(epsilon)`.

    Args:
        dtype: As in `safe_mask_value`.

    Returns:
        A Python float, exact in `dtype`.

    Raises:
        PrecisionError: If `dtype` is none of these.

    Example:

    >>> safe_epsilon("float16")
    6.103515625e-05
    """
    return format_of(_parse(dtype)).smallest_normal


def _parse(dtype: Any) -> str:
    if isinstance(dtype, keras.DTypePolicy):
        dtype = dtype.compute_dtype
    # NumPy's are classes or have a name, TensorFlow's have one, Keras's are strings.
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)
    return parse_precision(name, argument="dtype", also=("float64",))
