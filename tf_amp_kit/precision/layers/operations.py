"""A stretch of code in float32, inside a layer of one's own."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast, overload

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.layers.casting import cast_floats, dtype_name
from tf_amp_kit.precision.results import COMPUTE, FLOAT32, checked_output
from tf_amp_kit.tracing.records import MEANT_WIDE_SCOPE

__all__ = ["Float32Op", "Float32Stretch", "float32_op"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def float32_op(function: _Function) -> _Function: ...


@overload
def float32_op(function: None = None, *, output: str = COMPUTE) -> Float32Op: ...


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

    As a context it gives a stretch, which is told what goes up and what comes
    back:

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
        The function in float32, or a `Float32Op`: the context and decorator,
        which may be kept, entered again inside itself, and shared by threads.

    Raises:
        LayerError: If `output` is unknown, or `function` is none: a layer
            computes as its own policy says, and a generator or coroutine later.

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
    op = Float32Op(output)
    return op if function is None else op(function)


class Float32Op:
    """What `float32_op()` gives: a context, and a decorator.

    Args:
        output: As in `float32_op`.

    Example:

    >>> wide = float32_op(output="float32")
    >>> with wide as stretch:
    ...     stretch.back(stretch.up(keras.ops.ones((2,), "bfloat16"))).dtype.name
    'float32'
    """

    def __init__(self, output: str) -> None:
        self._output = checked_output(output)

    def __enter__(self) -> Float32Stretch:
        opened = _opened(self._output)
        stretch = opened.__enter__()
        _open_blocks().append(opened)
        return stretch

    def __exit__(self, *error: Any) -> None:
        _open_blocks().pop().__exit__(*error)

    def __call__(self, function: _Function) -> _Function:
        """Returns the function with its arguments raised and its results back."""
        _check(function)

        @functools.wraps(function)
        def in_float32(*args: Any, **kwargs: Any) -> Any:
            with self as stretch:
                wide_args, wide_kwargs = stretch.up((args, kwargs))
                return stretch.back(function(*wide_args, **wide_kwargs))

        return cast(_Function, in_float32)


class Float32Stretch:
    """One block of `with float32_op() as stretch:`, while it lasts.

    Args:
        results_dtype: What `back` casts to; None for the dtype of the first half
            tensor that goes up.

    Example:

    >>> with float32_op() as stretch:
    ...     wide = stretch.up(keras.ops.ones((2,), "bfloat16"))
    ...     wide.dtype.name, stretch.back(wide).dtype.name
    ('float32', 'bfloat16')
    """

    def __init__(self, results_dtype: str | None) -> None:
        self._results_dtype = results_dtype
        self._has_ended = False

    def up(self, structure: Any) -> Any:
        """Returns a nested structure with its half tensors in float32.

        Raises:
            LayerError: If the block has ended.
        """
        self._check_open()
        if self._results_dtype is None:
            halves = filter(is_half, map(dtype_name, keras.tree.flatten(structure)))
            self._results_dtype = next(halves, None)
        return cast_floats(structure, FLOAT32, only_half=True)

    def back(self, structure: Any) -> Any:
        """Returns a nested structure with its float tensors as results.

        Raises:
            LayerError: If the block has ended.
        """
        self._check_open()
        dtype = self._results_dtype
        return structure if dtype is None else cast_floats(structure, dtype)

    def end(self) -> None:
        """Refuses `up` and `back` from now on."""
        self._has_ended = True

    def _check_open(self) -> None:
        if self._has_ended:
            raise LayerError(
                "A stretch of float32 ends with its block. Expected `up` and `back` inside of "
                "`with float32_op() as stretch:`. Received: a call after it."
            )


def _check(function: Any) -> None:
    if not callable(function) or isinstance(function, keras.layers.Layer):
        raise LayerError(
            "Only functions can be decorated. Expected a function. "
            f"Received: function={function!r}. For a layer use Float32(layer)."
        )
    runs_later = (
        inspect.isgeneratorfunction,
        inspect.iscoroutinefunction,
        inspect.isasyncgenfunction,
    )
    if any(does(function) for does in runs_later):
        raise LayerError(
            "A generator or coroutine runs when the stretch is over. Expected a function that "
            f"returns its results. Received: function={function!r}. "
            "Decorate what it calls, or return a list."
        )


# Of each thread by itself, and not on the contexts: replicas of a distributed
# model share its layers, and run in a thread each.
_blocks = threading.local()


def _open_blocks() -> list[AbstractContextManager[Float32Stretch]]:
    """Returns the blocks that this thread is in, innermost last."""
    blocks: list[AbstractContextManager[Float32Stretch]] = vars(_blocks).setdefault("open", [])
    return blocks


@contextmanager
def _opened(output: str) -> Iterator[Float32Stretch]:
    around = _keras.autocast_dtype()
    stretch = Float32Stretch(FLOAT32 if output == FLOAT32 else around)
    with _keras.autocast_scope(FLOAT32), tf.name_scope(MEANT_WIDE_SCOPE):
        try:
            yield stretch
        finally:
            stretch.end()
