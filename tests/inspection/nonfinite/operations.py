"""Runs single TensorFlow operations, and asks why their results are not finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np
import tensorflow as tf

from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.inspection.nonfinite.reasons import explain


def reason_of(operation: str, *inputs: Any, output: int = 0, **attributes: Any) -> str:
    """Runs an operation, checks that its result is not finite, and explains it."""
    arguments = dict(
        zip(signature(getattr(tf.raw_ops, operation)).parameters, inputs, strict=False)
    )
    results = getattr(tf.raw_ops, operation)(**arguments, **attributes)
    result = (results[output] if isinstance(results, Sequence) else results).numpy()
    assert not np.isfinite(result).all(), result
    operands = [Operand.of(tensor.numpy()) for tensor in tf.nest.flatten(inputs)]
    get_attribute = attributes_of(operation, arguments, attributes)
    return explain(operation, operands, Operand.of(result), get_attribute)


def attributes_of(
    operation: str, arguments: dict[str, Any], attributes: dict[str, Any]
) -> Callable[[str], Any]:
    """Gives the attributes as a graph's operation has them, defaults and bytes too."""
    with tf.Graph().as_default() as graph:
        placeholders = tf.nest.map_structure(
            lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape), arguments
        )
        getattr(tf.raw_ops, operation)(**placeholders, **attributes)
    op = next(op for op in graph.get_operations() if op.type == operation)

    def get_attribute(name: str) -> Any:
        try:
            return op.get_attr(name)
        except ValueError:
            return None

    return get_attribute


def half(*values: Any) -> tf.Tensor:
    return tf.constant(values, "float16")


def brain(*values: Any) -> tf.Tensor:
    return tf.constant(values, "bfloat16")


def single(*values: Any) -> tf.Tensor:
    return tf.constant(values, "float32")


def full(shape: Sequence[int], value: float, dtype: str = "float16") -> tf.Tensor:
    return tf.cast(tf.fill(shape, value), dtype)
