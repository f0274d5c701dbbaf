"""Tracing a whole train step: forward pass, loss, gradients and metrics."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.data import batch_specs
from tf_amp_kit.errors import InputsError, ModelError
from tf_amp_kit.formats import is_half, width
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.inputs import accepts_training, candidate_specs
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.numbering import keyed_arguments, keyed_numbers, numbers
from tf_amp_kit.tracing.observe import observing
from tf_amp_kit.tracing.paths import LayerPaths, join, variable_paths
from tf_amp_kit.tracing.reading import (
    GraphReader,
    added_losses,
    layer_calls,
)
from tf_amp_kit.tracing.recorder import OpenCall, Recorder
from tf_amp_kit.tracing.state import undisturbed
from tf_amp_kit.tracing.step_errors import TRANSLATED, meaning_of
from tf_amp_kit.tracing.step_trace import GRADIENTS_PATH, LOSS_PATH, METRICS_PATH, StepTrace

__all__ = [
    "Observers",
    "build_by_step",
    "trace_step",
]

# Any one will do, as long as it stays the same.
_SEED: Final = 1


@dataclass(frozen=True)
class Observers:
    """What may be done to tensors while a step is traced.

    Attributes:
        on_outputs: Takes a call that returned, and gives what it hands on instead.
        on_gradients: Takes the gradients by variable, and gives what stands for them.
    """

    on_outputs: Callable[[OpenCall], Any] | None = None
    on_gradients: Callable[[list[tuple[Any, Any]]], list[tuple[Any, Any]]] | None = None


class Phase:
    """Stands in the record for what a train step does outside the model."""

    name = ""


class Loss(Phase):
    """The call of the loss; its class name gives the path."""


class Gradients(Phase):
    """The backward pass."""


class Metrics(Phase):
    """The update of the compiled metrics."""


def trace_step(
    model: Any,
    data: Any,
    *,
    loss: Any = None,
    in_float32: bool | Collection[Any] = False,
    observers: Observers | None = None,
    with_metrics: bool = False,
) -> StepTrace:
    """Traces a train step into a graph, and leaves the model as it was.

    The update of the weights is left out: it would create the optimizer's
    variables. A `train_step` of the model's own is not called either. The loss is
    multiplied by an input of the graph, whatever the optimizer is.

    Args:
        model: A Keras model, compiled unless `loss` is given.
        data: `(x, y[, sample_weight])` as arrays or specs, or a dataset.
        loss: What `compile` takes as `loss`; a plain function is called as a loop
            of the user's calls it, `loss(y, y_pred)`, with what the model returns.
            None for the compiled loss.
        in_float32: Whether half-precision layers compute in float32 this once, or the
            layers that do.
        observers: What is done to tensors on the way.
        with_metrics: Whether compiled metrics are updated too.

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
    if loss is None and not model.compiled:
        raise ModelError(
            "The model has no loss. Expected a compiled model or `loss=`. "
            f"Received: {type(model).__name__} named {model.name!r}, loss=None."
        )
    x, y, sample_weight = batch_specs(data)
    next(iter(candidate_specs(model, x)))  # raises if they do not fit
    observers = observers or Observers()
    paths = LayerPaths(model)
    recorder = Recorder(paths, on_outputs=observers.on_outputs)
    with contextlib.ExitStack() as stack:
        stack.enter_context(undisturbed(paths))
        stack.enter_context(_keras.op_callbacks_off())
        stack.enter_context(_keras.fresh_loss(model, None if is_plain_function(loss) else loss))
        stack.enter_context(_keras.fresh_metrics(model))
        # NumPy warns where a constant overflows: that is a finding, with its line.
        stack.enter_context(np.errstate(over="ignore"))
        only = () if in_float32 is False else None if in_float32 is True else in_float32
        stack.enter_context(_keras.half_layers_compute_in("float32", only=only))
        step = _Step(model, recorder, loss, observers, with_metrics, in_float32 is True)
        return step.trace(x, y, sample_weight)


def build_by_step(model: Any, data: Any, loss: Any = None) -> None:
    """Builds a model that is not built, by tracing a step: weights stay the same.

    Args:
        model: A Keras model.
        data: What `trace_step` takes.
        loss: Likewise.
    """
    # Some layers of Keras hold others that are never built.
    models = [layer for _, layer in LayerPaths(model) if isinstance(layer, keras.Model)]
    if not all(one.built for one in models):
        trace_step(model, data, loss=loss, in_float32=True)


def is_plain_function(loss: Any) -> bool:
    """Tells whether a loss is a function of the user's, and no class or name of Keras."""
    return callable(loss) and not isinstance(loss, keras.losses.Loss | type)


class _Step:
    """A train step while it is traced."""

    def __init__(
        self,
        model: Any,
        recorder: Recorder,
        loss: Any,
        observers: Observers,
        with_metrics: bool,
        in_float32: bool,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._loss_fn: Any = loss if is_plain_function(loss) else None
        self._observers = observers
        self._with_metrics = with_metrics
        self._in_float32 = in_float32

    def trace(self, x: Any, y: Any, sample_weight: Any) -> StepTrace:
        given = {"y": y, "sample_weight": sample_weight}
        kwargs = {name: value for name, value in given.items() if value is not None}
        args = (x, tf.TensorSpec((), tf.float32))
        try:
            graph = _keras.trace_to_graph(self._run, args, kwargs, is_to_run=True)
        except TRANSLATED as error:
            is_wide = self._in_float32
            meaning = meaning_of(error, self._model, has_targets=y is not None, is_wide=is_wide)
            if meaning is None:
                raise
            raise meaning from error
        return self._freeze(GraphReader(graph, self._recorder.calls), (x, y, sample_weight))

    def _run(self, x: Any, loss_scale: Any, y: Any = None, sample_weight: Any = None) -> Any:
        # Otherwise random operations without a seed would differ from run to run.
        graph = tf.compat.v1.get_default_graph()
        graph.seed = _SEED if graph.seed is None else graph.seed
        training = {"training": True} if accepts_training(self._model) else {}
        run = self._recorder.run
        with observing(self._recorder), _keras.originals_remembered():
            with tf.GradientTape() as tape:
                self._outputs = self._model(x, **training)
                args = (x, y, self._outputs, sample_weight, loss_scale)
                self._loss = run(Loss(), self._compute_loss, args, {})
            variables = self._model.trainable_variables
            gradients = run(Gradients(), self._compute_gradients, (tape, variables), {})
            self._gradients = list(zip(variables, gradients, strict=True))
            self._metrics = None
            if self._with_metrics and y is not None:
                self._metrics = run(
                    Metrics(), self._compute_metrics, (x, y, self._outputs, sample_weight), {}
                )
        if self._observers.on_gradients:
            self._gradients = self._observers.on_gradients(self._gradients)
        return self._loss

    def _compute_gradients(self, _: Phase, tape: Any, variables: Any) -> list[Any]:
        gradients = tape.gradient(self._loss, variables)
        return [_before_cast(one) for one in gradients] if self._in_float32 else gradients

    def _compute_loss(
        self, _: Phase, x: Any, y: Any, y_pred: Any, sample_weight: Any, loss_scale: Any
    ) -> Any:
        if self._loss_fn is not None:
            loss = self._call_loss_fn(y, y_pred, sample_weight)
        else:
            parameters = inspect.signature(self._model.compute_loss).parameters
            training = {"training": True} if "training" in parameters else {}
            loss = self._model.compute_loss(
                x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, **training
            )
        # As loss scaling does: the largest scales are beyond float16.
        loss = tf.cast(loss, tf.float32) if is_half(loss.dtype.name) else loss
        return loss * tf.cast(loss_scale, loss.dtype)

    def _call_loss_fn(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        if sample_weight is not None:
            raise InputsError(
                "A plain function as loss takes no sample weights. Expected data without them, "
                f"or a keras.losses.Loss. Received: loss={self._loss_fn!r} and sample weights."
            )
        loss = tf.reduce_mean(self._loss_fn(y, y_pred))
        return tf.add_n([loss, *(tf.cast(one, loss.dtype) for one in self._model.losses)])

    def _compute_metrics(self, _: Phase, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        return self._model.compute_metrics(x, y, y_pred, sample_weight)

    def _freeze(self, reader: GraphReader, specs: tuple[Any, Any, Any]) -> StepTrace:
        recorder = self._recorder
        paths = recorder.paths or LayerPaths(self._model)
        names = {id(one): path for one, path in variable_paths(paths)}
        gradients = {
            names.get(id(variable), variable.name): next(
                iter(numbers(getattr(gradient, "values", gradient), reader)), None
            )
            for variable, gradient in self._gradients
        }
        (loss,) = numbers(self._loss, reader)
        outputs = keyed_numbers(self._outputs, reader) | {LOSS_PATH: loss}
        outputs |= {
            join(GRADIENTS_PATH, name): key for name, key in gradients.items() if key is not None
        }
        metrics = keyed_numbers(self._metrics or {}, reader)
        outputs |= {join(METRICS_PATH, name): key for name, key in metrics.items()}
        trace = ModelTrace(
            training=True,
            is_eager=False,
            layers=layer_facts(paths),
            calls=layer_calls(recorder, reader),
            operations=tuple(reader.operations),
            tensors=tuple(reader.tensors),
            inputs=keyed_numbers(keyed_arguments(recorder.calls[0].arguments), reader),
            outputs=outputs,
            losses=added_losses(recorder, reader),
        )
        return StepTrace(
            trace, loss, gradients, specs, reader, tuple(_keras.written_variables(reader.graph))
        )


def _before_cast(gradient: Any) -> Any:
    """Takes back the cast of a gradient to the dtype of a half-precision variable."""
    if isinstance(gradient, tf.IndexedSlices):
        values = _before_cast(gradient.values)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if gradient is None or gradient.op.type != "Cast":
        return gradient
    wide = gradient.op.inputs[0]
    return wide if width(wide.dtype.name) > width(gradient.dtype.name) else gradient
