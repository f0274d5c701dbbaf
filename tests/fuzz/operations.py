"""What the operations of a description do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf
from keras import ops

WIDTH: Final = 4

_NUMBER: Final = 0.3
_PRODUCTS: Final = frozenset({"matmul", "einsum", "operator_matmul", "tf_matmul", "tf_einsum"})
_JOINS: Final = frozenset({"concatenate", "stack", "tf_concat"})


def constant(kind: str, operation: str) -> Any:
    """Makes an operand that no layer owns, of a shape that fits the operation."""
    form, _, dtype = kind.partition(" ")
    shape = (WIDTH, WIDTH) if operation in _PRODUCTS else (WIDTH,)
    if operation in _JOINS:
        shape = (2, WIDTH, WIDTH)
    if len(shape) > 1 and form in ("float", "int", "np.float32", "np.float64", "np.float16"):
        form, dtype = "array", {"float": "float64", "int": "int64"}.get(form, form[3:])
    match form:
        case "float":
            return _NUMBER
        case "int":
            return 2
        case "np.sqrt":
            return np.sqrt(WIDTH) if len(shape) == 1 else np.sqrt(np.full(shape, _NUMBER))
        case "np.float32" | "np.float64" | "np.float16":
            return getattr(np, form[3:])(_NUMBER)
        case "array":
            return np.full(shape, 2 if dtype == "int64" else _NUMBER, dtype)
        case "tensor":
            return tf.constant(_NUMBER, dtype, shape)
        case "ops.full":
            return ops.full(shape, _NUMBER)
    raise ValueError(f"Unknown constant: {kind!r}")


def fitted(value: Any) -> Any:
    """Brings a value to the shape that all have, without a change of its dtype."""
    rows, columns = (size or WIDTH for size in value.shape[1:])
    if rows == 1:
        return ops.repeat(value, WIDTH, axis=1)
    if rows > WIDTH:
        value = value[:, :WIDTH]
    if columns > WIDTH:
        value = value[:, :, :WIDTH]
    return value


def _equation(operand: Any) -> str:
    return "bij,bjk->bik" if len(operand.shape) == 3 else "bij,jk->bik"


def _joined(value: Any, operand: Any) -> list[Any]:
    return [value, operand]


UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "relu": ops.relu,
    "softmax": ops.softmax,
    "mean": lambda x: ops.mean(x, axis=1, keepdims=True),
    "sum": lambda x: ops.sum(x, axis=1, keepdims=True),
    "exp": lambda x: ops.exp(ops.minimum(x, 1)),
    "sqrt": lambda x: ops.sqrt(ops.abs(x)),
    "logsumexp": lambda x: ops.logsumexp(x, axis=1, keepdims=True),
    "var": lambda x: ops.var(x, axis=1, keepdims=True),
    "cumsum": lambda x: ops.cumsum(x, axis=1),
    "max": lambda x: ops.max(x, axis=1, keepdims=True),
    "transpose": lambda x: ops.transpose(x, (0, 2, 1)),
    "one_hot": lambda x: ops.one_hot(ops.argmax(x, axis=-1), WIDTH),
    "stop_gradient": ops.stop_gradient,
    "layer_normalization": lambda x: (x - ops.mean(x, -1, keepdims=True)) / (ops.std(x) + 1e-3),
    "cast_float32": lambda x: ops.cast(x, "float32"),
    "cast_float16": lambda x: ops.cast(x, "float16"),
    "cast_bfloat16": lambda x: ops.cast(x, "bfloat16"),
    "cast_float64": lambda x: ops.cast(x, "float64"),
    "round_trip": lambda x: ops.cast(ops.cast(x, "int32"), x.dtype),
}

BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "multiply": ops.multiply,
    "add": ops.add,
    "subtract": ops.subtract,
    "divide": lambda x, y: ops.divide(x, ops.add(ops.abs(y), 1)),
    "maximum": ops.maximum,
    "where": lambda x, y: ops.where(ops.greater(x, 0), x, y),
    "matmul": ops.matmul,
    "einsum": lambda x, y: ops.einsum(_equation(y), x, y),
    "concatenate": lambda x, y: ops.concatenate(_joined(x, y), axis=-1),
    "stack": lambda x, y: ops.mean(ops.stack(_joined(x, y), axis=1), axis=1),
    "power": lambda x, y: ops.power(ops.abs(x), y),
    "operator_multiply": lambda x, y: x * y,
    "operator_add_left": lambda x, y: y + x,
    "operator_matmul": lambda x, y: x @ y,
    "tf_multiply": lambda x, y: tf.multiply(x, y),
    "tf_add": lambda x, y: tf.add(x, y),
    "tf_matmul": lambda x, y: tf.matmul(x, y),
    "tf_einsum": lambda x, y: tf.einsum(_equation(y), x, y),
    "tf_concat": lambda x, y: tf.concat(_joined(x, y), axis=-1),
    "tf_where": lambda x, y: tf.where(x > 0, x, y),
    "cond": lambda x, y: ops.cond(
        ops.sum(ops.cast(x, "float32")) < 1e9, lambda: x * y, lambda: x * y
    ),
}

IN_CALL: Final[dict[str, Callable[[Any, keras.layers.Layer], Any]]] = {
    "cast_compute": lambda x, owner: ops.cast(x, owner.compute_dtype),
    "loop": lambda x, owner: ops.fori_loop(0, 2, lambda _, y: y + y, x),
    "map": lambda x, owner: ops.map(lambda row: ops.matmul(row, row), x),
}
