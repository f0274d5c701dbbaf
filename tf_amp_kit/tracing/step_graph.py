"""Tracing a train step, whole or in part: forward pass, loss, gradients and metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import keras
import numpy as np

from tf_amp_kit import _keras
from tf_amp_kit.data import batch_specs
from tf_amp_kit.errors import ModelError
from tf_amp_kit.tracing.inputs import candidate_specs
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.recorder import Recorder
from tf_amp_kit.tracing.state import undisturbed
from tf_amp_kit.tracing.step_phases import (
    GRADIENTS,
    OUTPUTS,
    Observers,
    Step,
    is_plain_function,
)
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["build_by_step", "trace_step"]


def trace_step(
    model: Any,
    data: Any,
    *,
    loss: Any = None,
    in_float32: bool | Collection[Any] = False,
    observers: Observers | None = None,
    with_metrics: bool = False,
    until: str = GRADIENTS,
    training: bool = True,
) -> StepTrace:
    """Traces a train step into a graph, and leaves the model as it was.

    The update of the weights is left out: it would create the optimizer's
    variables. A `train_step` of the model's own is not called either. The loss is
    multiplied by an input of the graph, whatever the optimizer is.

    Args:
        model: A Keras model, compiled unless `loss` is given or not needed.
        data: `(x, y[, sample_weight])` as arrays or specs, or a dataset.
        loss: What `compile` takes as `loss`; a plain function is called as a loop
            of the user's calls it, `loss(y, y_pred)`, with what the model returns.
            None for the compiled loss.
        in_float32: Whether half-precision layers compute in float32 this once, or the
            layers that do.
        observers: What is done to tensors on the way.
        with_metrics: Whether compiled metrics are updated too.
        until: How far the step goes: `OUTPUTS`, `LOSS` or `GRADIENTS`.
        training: What the model is called with: False holds dropout and the statistics
            of normalizations still.

    Returns:
        A `StepTrace`.

    Raises:
        ModelError: If it is not a Keras 3 model, or has no loss.
        InputsError: If the data cannot be read, or do not fit.
        TracingError: If the model's Python code needs values.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> step = trace_step(model, (np.ones((4, 3)), np.ones((4, 2))), loss="mse")
    >>> step.gradients.keys()
    dict_keys(['dense/kernel', 'dense/bias'])
    """
    check_keras_model(model)
    if until != OUTPUTS and loss is None and not model.compiled:
        raise ModelError(
            "The model has no loss. Expected a compiled model or `loss=`. "
            f"Received: {type(model).__name__} named {model.name!r}, loss=None."
        )
    specs = batch_specs(data)
    next(iter(candidate_specs(model, specs[0])))  # raises if they do not fit
    observers = observers or Observers()
    paths = LayerPaths(model)
    recorder = Recorder(paths, on_inputs=observers.on_inputs, on_outputs=observers.on_outputs)
    with contextlib.ExitStack() as stack:
        stack.enter_context(undisturbed(paths))
        stack.enter_context(_keras.op_callbacks_off())
        stack.enter_context(_keras.fresh_loss(model, None if is_plain_function(loss) else loss))
        stack.enter_context(_keras.fresh_metrics(model))
        # NumPy warns where a constant overflows: that is a finding, with its line.
        stack.enter_context(np.errstate(over="ignore"))
        only = () if in_float32 is False else None if in_float32 is True else in_float32
        stack.enter_context(_keras.half_layers_compute_in("float32", only=only))
        step = Step(
            model,
            recorder,
            loss,
            observers,
            until=until,
            training=training,
            with_metrics=with_metrics,
            in_float32=in_float32 is True,
        )
        return step.trace(*specs)


def build_by_step(model: Any, data: Any) -> None:
    """Builds a model that is not built, by tracing it: weights stay the same.

    Args:
        model: A Keras model.
        data: What `trace_step` takes.
    """
    # Some layers of Keras hold others that are never built.
    models = [layer for _, layer in LayerPaths(model) if isinstance(layer, keras.Model)]
    if not all(one.built for one in models):
        trace_step(model, data, in_float32=True, until=OUTPUTS)
