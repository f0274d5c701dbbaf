"""A stretch of code in float32, inside a layer of one's own."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.layers.casting import cast_floats, dtype_name
from tf_amp_kit.precision.results import COMPUTE, FLOAT32, checked_output
from tf_amp_kit.tracing.records import MEANT_WIDE_SCOPE

__all__ = ["Float32Stretch", "float32_op"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def float32_op(function: _Function) -> _Function: ...


@overload
def float32_op(function: None = None, *, output: str = COMPUTE) -> Float32Stretch: ...


def float32_op(function: Any = None, *, output: str = COMPUTE) -> Any:
    """Computes a function, or a stretch of code, in float32.

    For the few lines of your own layer that half precision breaks. Around a
    function, half tensors among its arguments go up to float32, and its results
    come back:

    ```
    class Scores(keras.layers.Layer):
        @amp.float32_op
        def scores(self, query, key):
            return keras.ops.matmul(query, self.kernel) @ keras.ops.transpose(key)
    ```

    As a context it says itself what goes up and what comes back:

    ```
        def call(self, inputs):
            with amp.float32_op() as stretch:
                x = stretch.up(inputs)
                x = x / keras.ops.norm(x + self.offset, axis=-1, keepdims=True)
                return stretch.back(x)
    ```

    Inside, weights read as float32. Other layers that are called there compute
    as their own policies say: wrap them in `Float32`. Gradients are float32
    inside too, as the casts are part of the computation.

    Results come back to the compute dtype of the layer that is being called.
    Where none casts, outside of layers or in one that is all float32, they come
    back to the dtype of the first half tensor that went up; where none did,
    they stay as they are.

    Args:
        function: The function; None for a context, or for a decorator with
            arguments.
        output: `"compute"`, or `"float32"` for float32 results.

    Returns:
        The function in float32, or a `Float32Stretch`.

    Raises:
        LayerError: If `output` is unknown, or `function` is none.

    Example:

    >>> @float32_op
    ... def squares(x):
    ...     return keras.ops.sqrt(keras.ops.sum(x * x))
    >>> print(float(squares(keras.ops.array([300, 400], "float16"))))
    500.0
    >>> with float32_op() as stretch:
    ...     x = stretch.up(keras.ops.array([300, 400], "float16"))
    ...     x = stretch.back(x * x / 1000)
    >>> x.dtype.name, x.numpy().tolist()
    ('float16', [90.0, 160.0])
    """
    stretch = Float32Stretch(output)
    return stretch if function is None else stretch(function)


class Float32Stretch:
    """What `float32_op()` gives: a context, and a decorator.

    Args:
        output: As in `float32_op`.

    Example:

    >>> with float32_op(output="float32") as stretch:
    ...     stretch.back(stretch.up(keras.ops.ones((2,), "bfloat16"))).dtype.name
    'float32'
    """

    def __init__(self, output: str) -> None:
        self._output = checked_output(output)
        # Innermost last: the same stretch may be entered again inside itself.
        self._entered: list[contextlib.ExitStack] = []
        self._results_dtypes: list[str | None] = []

    def __enter__(self) -> Float32Stretch:
        around = _keras.autocast_dtype()
        self._results_dtypes.append(FLOAT32 if self._output == FLOAT32 else around)
        with contextlib.ExitStack() as scopes:
            scopes.enter_context(_keras.autocast_scope(FLOAT32))
            scopes.enter_context(tf.name_scope(MEANT_WIDE_SCOPE))
            self._entered.append(scopes.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._results_dtypes.pop()
        self._entered.pop().__exit__(*error)

    def __call__(self, function: _Function) -> _Function:
        """Returns the function with its arguments raised and its results back."""
        if not callable(function):
            raise LayerError(
                "Only functions can be decorated. Expected a function. "
                f"Received: function={function!r}. For a layer use Float32(layer)."
            )

        @functools.wraps(function)
        def in_float32(*args: Any, **kwargs: Any) -> Any:
            # A stretch of its own: calls may nest, and run in several threads.
            with Float32Stretch(self._output) as stretch:
                wide_args, wide_kwargs = stretch.up((args, kwargs))
                return stretch.back(function(*wide_args, **wide_kwargs))

        return cast(_Function, in_float32)

    def up(self, structure: Any) -> Any:
        """Returns a nested structure with its half tensors in float32."""
        self._check_entered()
        if self._results_dtypes[-1] is None:
            halves = filter(is_half, map(dtype_name, keras.tree.flatten(structure)))
            self._results_dtypes[-1] = next(halves, None)
        return cast_floats(structure, FLOAT32, only_half=True)

    def back(self, structure: Any) -> Any:
        """Returns a nested structure with its float tensors as results."""
        self._check_entered()
        dtype = self._results_dtypes[-1]
        return structure if dtype is None else cast_floats(structure, dtype)

    def _check_entered(self) -> None:
        if not self._entered:
            raise LayerError(
                "A stretch of float32 ends with its block. Expected `up` and `back` inside of "
                "`with float32_op() as stretch:`. Received: a call outside of it."
            )
