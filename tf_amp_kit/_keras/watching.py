"""Private names of TensorFlow about gradients that pass through a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def handed_on(
    value: Any, marks: Sequence[int], gradient_type: str, backward: Callable[[Any], Any]
) -> Any:
    """Hands a tensor of a graph on, with a gradient of our own.

    Uses `record.record_operation`: `tf.custom_gradient` keeps each function that it
    is given, and the graph with it, for as long as the process lives.

    Args:
        value: A tensor of the graph that is traced.
        marks: Numbers that the operation has as further inputs.
        gradient_type: The name by which a gradient is registered that does the same
            as `backward`: in the body of a loop TensorFlow has no more than the
            operation.
        backward: Takes the gradient that arrives, and returns the one of `value`.
    """
    from tensorflow.python.eager import record

    inputs = [value, *map(tf.constant, marks)]
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": gradient_type}):
        output = tf.raw_ops.IdentityN(input=inputs)[0]
    # Takes the place of what the tape has noted for the operation itself.
    record.record_operation(gradient_type, [output], [value], lambda one: [backward(one)])
    return output
