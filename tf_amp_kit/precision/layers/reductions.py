"""Functions of `keras.ops` that sum up along an axis, as layers in float32.

Keras has no layers for them, so that files with these need this package.
"""

from __future__ import annotations

from typing import Any, ClassVar

import keras

from tf_amp_kit.precision.layers.casting import cast_floats
from tf_amp_kit.precision.layers.regularizers import with_wide_regularizer
from tf_amp_kit.precision.results import FLOAT32, CastsResults, Results

__all__ = ["CumSum", "LogSoftmax", "LogSumExp", "Mean", "Norm", "Sum", "Variance"]

_registered = keras.saving.register_keras_serializable("tf_amp_kit")


class _AlongAxis(CastsResults, keras.layers.Layer):
    """What the layers here share: an axis, float32 inside, and arguments in files."""

    function: ClassVar[Any]

    def __init__(self, axis: Any, output: str, dtype: Any, **kwargs: Any) -> None:
        results = Results.parse(output, dtype)
        super().__init__(dtype=FLOAT32, **with_wide_regularizer(kwargs))
        self._results = results
        self.axis = axis

    def _arguments(self) -> dict[str, Any]:
        return {"axis": self.axis}

    def call(self, inputs: Any) -> Any:
        """Computes in float32, and gives the result in the dtype asked for."""
        wide = cast_floats(inputs, FLOAT32)  # TimeDistributed calls `call` itself
        return cast_floats(self.function(wide, **self._arguments()), self._results.dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape that a trace gives; layers around this one ask for it."""
        return self.compute_output_spec(keras.KerasTensor(input_shape, FLOAT32)).shape

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Returns shape and dtype from a trace: both are what really comes back."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, as Keras's files keep them."""
        return {**super().get_config(), **self._arguments(), **self._results.config()}


class _Reduction(_AlongAxis):
    """What the layers share that reduce an axis.

    Args:
        axis: The axis or axes to reduce; None for all, the batch included.
        keepdims: Whether reduced axes stay, with one element.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.
    """

    def __init__(
        self,
        axis: Any = None,
        keepdims: bool = False,
        output: str = FLOAT32,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(axis, output, dtype, **kwargs)
        self.keepdims = keepdims

    def _arguments(self) -> dict[str, Any]:
        return {"axis": self.axis, "keepdims": self.keepdims}


@_registered
class Sum(_Reduction):
    """Sums along an axis in float32, as `keras.ops.sum` does.

    float16 sums overflow at 65504, bfloat16 ones stop growing: 256 + 1 is 256.

    Args:
        axis: The axis or axes to reduce; None for all, the batch included.
        keepdims: Whether reduced axes stay, with one element.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> float(Sum()(keras.ops.full((4096,), 300, "float16")))
    1228800.0
    """

    function = staticmethod(keras.ops.sum)


@_registered
class Mean(_Reduction):
    """Averages along an axis in float32, as `keras.ops.mean` does.

    A mean is a sum first, and that overflows in float16 where the mean fits.

    Args:
        axis: The axis or axes to reduce; None for all, the batch included.
        keepdims: Whether reduced axes stay, with one element.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> float(Mean()(keras.ops.full((4096,), 300, "float16")))
    300.0
    """

    function = staticmethod(keras.ops.mean)


@_registered
class Variance(_Reduction):
    """Computes the variance along an axis in float32, as `keras.ops.var` does.

    Squares leave float16 at 256, and differences of close values are lost in
    bfloat16.

    Args:
        axis: The axis or axes to reduce; None for all, the batch included.
        keepdims: Whether reduced axes stay, with one element.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> float(Variance()(keras.ops.array([-1000, 1000], "float16")))
    1000000.0
    """

    function = staticmethod(keras.ops.var)


@_registered
class LogSumExp(_Reduction):
    """Computes `log(sum(exp(x)))` along an axis in float32, as `keras.ops.logsumexp`.

    Args:
        axis: The axis or axes to reduce; None for all, the batch included.
        keepdims: Whether reduced axes stay, with one element.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> float(LogSumExp()(keras.ops.array([1000, -1000], "float16")))
    1000.0
    """

    function = staticmethod(keras.ops.logsumexp)


@_registered
class Norm(_Reduction):
    """Computes a vector or matrix norm in float32, as `keras.ops.norm` does.

    Squares overflow float16 above 255 and vanish below 2e-4.

    Args:
        ord: The order of the norm, in `keras.ops.norm`'s words.
        axis: The axis or axes to reduce; None for all, the batch included.
        keepdims: Whether reduced axes stay, with one element.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> float(Norm()(keras.ops.array([300, 400], "float16")))
    500.0
    """

    function = staticmethod(keras.ops.norm)

    def __init__(
        self,
        ord: Any = None,
        axis: Any = None,
        keepdims: bool = False,
        output: str = FLOAT32,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(axis, keepdims, output, dtype, **kwargs)
        self.ord = ord

    def _arguments(self) -> dict[str, Any]:
        return {"ord": self.ord, **super()._arguments()}


@_registered
class CumSum(_AlongAxis):
    """Sums up to each element along an axis in float32, as `keras.ops.cumsum` does.

    Args:
        axis: The axis; None for the flattened tensor, the batch included.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> CumSum()(keras.ops.array([2048, 1, 1], "float16")).numpy().tolist()
    [2048.0, 2049.0, 2050.0]
    """

    function = staticmethod(keras.ops.cumsum)

    def __init__(
        self, axis: Any = None, output: str = FLOAT32, dtype: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(axis, output, dtype, **kwargs)


@_registered
class LogSoftmax(_AlongAxis):
    """Computes the logarithm of a softmax in float32, as `keras.ops.log_softmax` does.

    In half precision the logarithms of confident predictions are rounded to 8 or
    11 bits, and their gradients with them.

    Args:
        axis: The axis whose elements compete.
        output: `"float32"`, or `"compute"` for the compute dtype of `dtype`.
        dtype: The policy that `output="compute"` means; None for the global one.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Example:

    >>> LogSoftmax()(keras.ops.array([[0, -3000]], "float16")).numpy().tolist()
    [[0.0, -3000.0]]
    """

    function = staticmethod(keras.ops.log_softmax)

    def __init__(
        self, axis: Any = -1, output: str = FLOAT32, dtype: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(axis, output, dtype, **kwargs)
        self.supports_masking = True
