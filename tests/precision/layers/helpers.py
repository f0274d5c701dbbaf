"""Running a layer in half and in float32, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.precision.layers.cases import Case


class Run(NamedTuple):
    """What came out: results, and gradients by inputs and by weights."""

    outputs: list[tf.Tensor]
    gradients: list[tf.Tensor]

    def rounded(self, dtype: str) -> Run:
        """The same, rounded to a dtype as TensorFlow does."""
        return Run(*([tf.cast(tensor, dtype) for tensor in part] for part in self))


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array's nearest values in the dtype, as float32."""
    return array.astype(getattr(ml_dtypes, dtype, dtype)).astype("float32")


def run(layer: Any, call: Callable[..., Any], inputs: list[tf.Tensor], loss: Any = None) -> Run:
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = keras.tree.flatten(call(layer, *inputs))
        value = sum((loss or weighted_sum)(tf.cast(out, "float32")) for out in outputs)
    sources = [*inputs, *[variable.value for variable in layer.trainable_variables]]
    return Run(outputs, tape.gradient(value, sources))


def weighted_sum(outputs: tf.Tensor) -> tf.Tensor:
    """A loss whose gradients differ from element to element."""
    factors = np.random.default_rng(11).uniform(0.5, 1.5, outputs.shape)
    return tf.reduce_sum(outputs * factors.astype("float32"))


def inputs_of(case: Case, dtype: str) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """The inputs as the model around hands them over, and the same as float32."""
    if case.takes_float32:
        arrays = [tf.constant(array) for array in case.inputs]
        return arrays, arrays
    wide = [tf.constant(rounded(array, dtype)) for array in case.inputs]
    return [tf.cast(array, dtype) for array in wide], wide


def compared(case: Case, make: Callable[[], Any], dtype: str) -> tuple[Run, Run]:
    """Runs a layer in a mixed program, and Keras's in a float32 one, on the same numbers.

    Args:
        case: The layer and its inputs.
        make: Makes the layer that is tried, under the mixed policy.
        dtype: The half dtype of the mixed policy.

    Returns:
        What came out of the layer, and what of the float32 program.
    """
    half_inputs, wide_inputs = inputs_of(case, dtype)
    tried = built(case, make, f"mixed_{dtype}", half_inputs)
    reference = built(case, case.keras_layer, "float32", wide_inputs)
    tried.set_weights(reference.get_weights())
    expected = run(reference, case.call, wide_inputs, case.loss)
    return run(tried, case.call, half_inputs, case.loss), expected


def built(case: Case, make: Callable[[], Any], policy: str, inputs: list[tf.Tensor]) -> Any:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        layer = make()
        weights = layer.get_weights()
        case.call(layer, *inputs)
        if weights:  # statistics that were there before the first call
            layer.set_weights(weights)
        return layer
    finally:
        keras.config.set_dtype_policy(before)


def assert_same(found: list[Any], expected: list[Any]) -> None:
    """Equal up to the order in which threads add up; expected in the dtype found."""
    for one, other in zip(found, expected, strict=True):
        wanted = np.asarray(tf.cast(tf.cast(other, one.dtype), "float32"))
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(np.asarray(tf.cast(one, "float32")), wanted, rtol=2e-6)


def is_far(found: list[Any], expected: list[Any]) -> bool:
    """Whether anything is not finite, or off by more than a tenth of the largest."""
    for one, other in zip(found, expected, strict=True):
        difference = np.abs(np.asarray(tf.cast(one, "float32")) - np.asarray(other))
        if not (difference <= 0.1 * np.abs(other).max()).all():
            return True
    return False
