"""A wrapper that keeps any layer in float32."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import LayerError
from tf_amp_kit.precision.layer_policies import policy_scope, set_float32
from tf_amp_kit.precision.layers.casting import cast_floats, dtype_name
from tf_amp_kit.precision.layers.regularizers import with_wide_regularizer
from tf_amp_kit.precision.results import COMPUTE, FLOAT32, CastsResults, Results
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["Float32"]


class _OfLayer:
    """An attribute that the wrapped layer has, or has not."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: Any, owner: type) -> Any:
        return self if wrapper is None else getattr(wrapper.layer, self._name)


@keras.saving.register_keras_serializable("tf_amp_kit")
class Float32(CastsResults, keras.layers.Wrapper, _keras.dropout_cell_class()):  # type: ignore[misc]
    """Wraps a layer so that it computes in float32, whatever surrounds it.

    For a layer of yours that half precision breaks, and for Keras's own where
    `dtype="float32"` does not reach: composites whose sublayers take the global
    policy, nested models, and everything that must come back to half. Inputs go
    up to float32, weights are the float32 ones, and results come back to the
    compute dtype unless told otherwise:

    ```
    x = amp.layers.Float32(RotaryAttention(8))(x)
    x = keras.layers.TimeDistributed(amp.layers.Float32(Spectrogram()))(x)
    x = keras.layers.RNN(amp.layers.Float32(LeakyCell(64)))(x)
    ```

    It is called like the wrapped layer: with its arguments, masks and
    `training`. As a cell of an `RNN` it gives each state back in the dtype that
    the loop carries it in, and that is float32; `StackedRNNCells` carries states
    in its own compute dtype: give it `dtype="float32"` too. The `RNN` around a
    cell still rounds sequence and outputs to its own dtype; wrap it instead to
    avoid that. A bidirectional RNN is wrapped whole: `Float32(Bidirectional(layer))`.

    The wrapped layer, with all its sublayers, has the float32 policy from then
    on, also where else it is used; and that it is used twice is in no file, as
    with Keras's own wrappers. Setting `dtype_policy` on the wrapper only
    changes what its results come back to.

    Args:
        layer: Any Keras layer or model, built or not.
        output: `"compute"` for results in the compute dtype of `dtype`, or
            `"float32"`. Integers stay integers.
        dtype: The dtype policy that the results come back to; None for the
            global one at the time of construction. Kept in files.
        **kwargs: `name` and what else `keras.layers.Layer` takes.

    Raises:
        LayerError: If `layer` is no layer, stores variables in half precision,
            or is wrapped in a way that Keras cannot run.

    Example:

    >>> import numpy as np
    >>> norm = keras.layers.UnitNormalization(dtype="mixed_float16")
    >>> x = np.full((1, 4), 300, "float16")
    >>> norm(x).numpy().tolist()
    [[0.0, 0.0, 0.0, 0.0]]
    >>> Float32(norm, dtype="mixed_float16")(x).numpy().tolist()
    [[0.5, 0.5, 0.5, 0.5]]
    """

    state_size = _OfLayer()
    output_size = _OfLayer()
    get_initial_state = _OfLayer()
    stateful = _OfLayer()
    reset_state = _OfLayer()
    reset_states = _OfLayer()

    def __init__(self, layer: Any, output: str = COMPUTE, dtype: Any = None, **kwargs: Any) -> None:
        _check(layer, kwargs)
        results = Results.parse(output, dtype)
        set_float32(layer)
        # Before Keras reads from its signature which masks and contexts to pass.
        self.call = _signed_like(layer.call, self.call)  # type: ignore[method-assign]
        # Without autocast, because states must be seen in the dtype they come in.
        super().__init__(layer, dtype=FLOAT32, autocast=False, **with_wide_regularizer(kwargs))
        # Keras reads there which shapes to pass.
        self.build = _signed_like(layer.build, self.build)  # type: ignore[method-assign]
        self.supports_masking = True
        self._results = results

    def build(self, *shapes: Any, **named_shapes: Any) -> None:
        """Builds the wrapped layer, unless it leaves that to its first call."""
        builds_itself = type(self.layer).build is not keras.layers.Layer.build
        if builds_itself and not self.layer.built:
            with policy_scope(FLOAT32):
                self.layer.build(*shapes, **named_shapes)
            set_float32(self.layer)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapped layer in float32, and gives its results back."""
        was_built = self.layer.built
        wide_args, wide_kwargs = cast_floats((args, kwargs), FLOAT32)
        with policy_scope(FLOAT32):
            outputs = self.layer(*wide_args, **wide_kwargs)
        if not was_built:
            set_float32(self.layer)
        if not self._is_cell:
            return cast_floats(outputs, self._results.dtype)
        output, new_states = outputs
        states = _states(self.layer.call, args, kwargs)
        return cast_floats(output, self._results.dtype), _cast_like(new_states, states)

    @property
    def _is_cell(self) -> bool:
        # A whole RNN has a state size too, and gives states only as results.
        return hasattr(self.layer, "state_size") and not isinstance(self.layer, keras.layers.RNN)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the shape that the wrapped layer computes."""
        return self.layer.compute_output_shape(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Returns shapes and dtypes from a trace: a layer's own answer may be half."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_mask(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the mask that the wrapped layer computes."""
        supports = self.layer.supports_masking
        return self.layer.compute_mask(*args, **kwargs) if supports else None

    def get_dropout_mask(self, step_input: Any) -> Any:
        """Makes the wrapped cell's dropout mask; `RNN` asks once per sequence."""
        return self._of_cell("get_dropout_mask", cast_floats(step_input, FLOAT32))

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        """Makes the wrapped cell's mask for states; `RNN` asks once per sequence."""
        return self._of_cell("get_recurrent_dropout_mask", cast_floats(step_input, FLOAT32))

    def reset_dropout_mask(self) -> None:
        """Drops the wrapped cell's dropout mask, at the end of a sequence."""
        self._of_cell("reset_dropout_mask")

    def reset_recurrent_dropout_mask(self) -> None:
        """Drops the wrapped cell's mask for states, at the end of a sequence."""
        self._of_cell("reset_recurrent_dropout_mask")

    def _of_cell(self, name: str, *args: Any) -> Any:
        method = getattr(self.layer, name, None)
        return None if method is None else method(*args)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, as Keras's files keep them."""
        return {**super().get_config(), **self._results.config()}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Makes the layer from its config, whatever the policy of the moment."""
        _check_not_bidirectional(config)
        with policy_scope(FLOAT32):
            return super().from_config(dict(config), custom_objects)

    def get_build_config(self) -> Any:
        """Returns what the wrapped layer was built with."""
        return self.layer.get_build_config()

    def build_from_config(self, config: Any) -> None:
        """Builds the wrapped layer, unless its own config did already."""
        if not self.layer.built:
            with policy_scope(FLOAT32):
                self.layer.build_from_config(config)
            set_float32(self.layer)


def _signed_like(model: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    vars(call)["__signature__"] = inspect.signature(model)
    return call


def _states(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the second argument of a cell's call, whatever its name."""
    _, states, *_ = inspect.signature(call).bind(*args, **kwargs).arguments.values()
    return states


def _cast_like(new_states: Any, states: Any) -> Any:
    # Flat, because a cell may take a list of one and return its only tensor.
    pairs = zip(keras.tree.flatten(new_states), keras.tree.flatten(states), strict=True)
    cast = [cast_floats(new, dtype_name(state)) for new, state in pairs]
    return keras.tree.pack_sequence_as(new_states, cast)


def _check(layer: Any, kwargs: dict[str, Any]) -> None:
    if not isinstance(layer, keras.layers.Layer):
        raise LayerError(
            "Only layers can be wrapped. Expected a keras.layers.Layer. "
            f"Received: layer={layer!r}. For a function use keras.layers.Lambda or float32_op."
        )
    _check_not_bidirectional(kwargs)
    is_stack = isinstance(layer, keras.layers.StackedRNNCells)
    cells = [cell for _, cell in LayerPaths(layer)] if is_stack else []
    if any(getattr(cell, r, 0) for cell in cells for r in ("dropout", "recurrent_dropout")):
        raise LayerError(
            "Keras finds the dropout of cells only directly in StackedRNNCells. Expected cells "
            f"without dropout. Received: layer={layer.name!r}. Wrap each cell: "
            "StackedRNNCells([Float32(cell), ...], dtype='float32')."
        )


def _check_not_bidirectional(config: dict[str, Any]) -> None:
    # Bidirectional writes it into the copied config of what it is given.
    if "go_backwards" in config:
        raise LayerError(
            "Bidirectional cannot turn a wrapped layer around. Expected the wrapper outside. "
            f"Received: Bidirectional(Float32(layer)), go_backwards={config['go_backwards']!r}. "
            "Write Float32(Bidirectional(layer))."
        )
