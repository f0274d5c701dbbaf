"""The phases of a train step while it is traced: model, loss, gradients, metrics."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import InputsError
from tf_amp_kit.formats import is_half
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.inputs import accepts_training
from tf_amp_kit.tracing.model_graph import conflict_records
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.numbering import keyed_arguments, keyed_numbers, numbers
from tf_amp_kit.tracing.observe import observing
from tf_amp_kit.tracing.paths import LayerPaths, join, variable_paths
from tf_amp_kit.tracing.reading import GraphReader, added_losses, layer_calls
from tf_amp_kit.tracing.recorder import OpenCall, Recorder
from tf_amp_kit.tracing.step_errors import TRANSLATED, meaning_of
from tf_amp_kit.tracing.step_gradients import before_cast
from tf_amp_kit.tracing.step_trace import GRADIENTS_PATH, LOSS_PATH, METRICS_PATH, StepTrace

__all__ = ["GRADIENTS", "LOSS", "OUTPUTS", "Observers", "Step", "StepTensors", "is_plain_function"]

#: How far a step goes.
OUTPUTS: Final = "outputs"
LOSS: Final = "loss"
GRADIENTS: Final = "gradients"

# Any one will do, as long as it stays the same.
_SEED: Final = 1


class StepTensors(NamedTuple):
    """The tensors that a step ends in; of what it does not reach, None or nothing."""

    outputs: Any
    loss: Any
    gradients: list[tuple[Any, Any]]


@dataclass(frozen=True)
class Observers:
    """What may be done to tensors while a step is traced.

    Attributes:
        on_inputs: Takes a call that begins, and gives the arguments to call with.
        on_outputs: Takes a call that returned, and gives what it hands on instead.
        on_gradients: Takes the gradients by variable, and gives what stands for them.
        on_end: Takes what the step ends in, to add more to the graph.
        on_update: Takes what the step ends in, to add the update of the weights.
    """

    on_inputs: Callable[[OpenCall], tuple[Any, Any]] | None = None
    on_outputs: Callable[[OpenCall], Any] | None = None
    on_gradients: Callable[[list[tuple[Any, Any]]], list[tuple[Any, Any]]] | None = None
    on_end: Callable[[StepTensors], None] | None = None
    on_update: Callable[[StepTensors], None] | None = None


class Phase:
    """Stands in the record for what a train step does outside the model."""

    name = ""


class Loss(Phase):
    """The call of the loss; its class name gives the path."""


class Gradients(Phase):
    """The backward pass."""


class Metrics(Phase):
    """The update of the compiled metrics."""


class Update(Phase):
    """What an optimizer does with the gradients."""


def is_plain_function(loss: Any) -> bool:
    """Tells whether a loss is a function of the user's, and no class or name of Keras."""
    return callable(loss) and not isinstance(loss, keras.losses.Loss | type)


class Step:
    """A train step while it is traced.

    Args:
        model: The model.
        recorder: Takes the record.
        loss: What `trace_step` takes.
        observers: What is done to tensors on the way.
        until: How far the step goes.
        training: What the model is called with.
        with_metrics: Whether compiled metrics are updated too.
        in_float32: Whether all half-precision layers compute in float32.
    """

    def __init__(
        self,
        model: Any,
        recorder: Recorder,
        loss: Any,
        observers: Observers,
        *,
        until: str,
        training: bool,
        with_metrics: bool,
        in_float32: bool,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._loss_fn: Any = loss if is_plain_function(loss) else None
        self._observers = observers
        self._until = until
        self._is_training = training
        self._training = {"training": training} if accepts_training(model) else {}
        self._with_metrics = with_metrics
        self._in_float32 = in_float32
        self._loss: Any = None
        self._is_in_loss = False
        self._gradients: list[tuple[Any, Any]] = []
        self._metrics: Any = None

    def trace(self, x: Any, y: Any, sample_weight: Any) -> StepTrace:
        """Traces the step on what its data look like."""
        given = {"y": y, "sample_weight": sample_weight}
        kwargs = {name: value for name, value in given.items() if value is not None}
        args = (x, tf.TensorSpec((), tf.float32))
        try:
            graph = _keras.trace_to_graph(self._run, args, kwargs, is_to_run=True)
        except TRANSLATED as error:
            is_wide = self._in_float32
            meaning = meaning_of(
                error,
                self._model,
                has_targets=y is not None,
                is_wide=is_wide,
                is_of_loss=self._is_in_loss,
            )
            if meaning is None:
                raise
            raise meaning from error
        return self._freeze(GraphReader(graph, self._recorder.calls), (x, y, sample_weight))

    def _run(self, x: Any, loss_scale: Any, y: Any = None, sample_weight: Any = None) -> Any:
        # Otherwise random operations without a seed would differ from run to run.
        graph = tf.compat.v1.get_default_graph()
        graph.seed = _SEED if graph.seed is None else graph.seed
        with observing(self._recorder), _keras.originals_remembered():
            self._run_phases(x, y, sample_weight, loss_scale)
        if self._observers.on_gradients:
            self._gradients = self._observers.on_gradients(self._gradients)
        end = StepTensors(self._outputs, self._loss, self._gradients)
        if self._observers.on_end:
            self._observers.on_end(end)
        if self._observers.on_update:
            update = self._observers.on_update
            self._recorder.run(Update(), lambda _, *ends: update(*ends), (end,), {})
        return [] if self._loss is None else self._loss

    def _run_phases(self, x: Any, y: Any, sample_weight: Any, loss_scale: Any) -> None:
        run = self._recorder.run
        if self._until == OUTPUTS:
            self._outputs = self._model(x, **self._training)
            return
        with tf.GradientTape() as tape:
            self._outputs = self._model(x, **self._training)
            args = (x, y, self._outputs, sample_weight, loss_scale)
            self._is_in_loss = True
            self._loss = run(Loss(), self._compute_loss, args, {})
            self._is_in_loss = False
        if self._until == GRADIENTS:
            variables = self._model.trainable_variables
            gradients = run(Gradients(), self._compute_gradients, (tape, variables), {})
            self._gradients = list(zip(variables, gradients, strict=True))
        if self._with_metrics and y is not None:
            self._metrics = run(
                Metrics(), self._compute_metrics, (x, y, self._outputs, sample_weight), {}
            )

    def _compute_gradients(self, _: Phase, tape: Any, variables: Any) -> list[Any]:
        gradients = tape.gradient(self._loss, variables)
        return [before_cast(one) for one in gradients] if self._in_float32 else gradients

    def _compute_loss(
        self, _: Phase, x: Any, y: Any, y_pred: Any, sample_weight: Any, loss_scale: Any
    ) -> Any:
        if self._loss_fn is not None:
            loss = self._call_loss_fn(y, y_pred, sample_weight)
        else:
            parameters = inspect.signature(self._model.compute_loss).parameters
            training = self._training if "training" in parameters else {}
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
        loss = next(iter(numbers(self._loss, reader)), None)
        outputs = keyed_numbers(self._outputs, reader)
        outputs |= {} if loss is None else {LOSS_PATH: loss}
        outputs |= {
            join(GRADIENTS_PATH, name): key for name, key in gradients.items() if key is not None
        }
        metrics = keyed_numbers(self._metrics or {}, reader)
        outputs |= {join(METRICS_PATH, name): key for name, key in metrics.items()}
        trace = ModelTrace(
            training=self._is_training,
            is_eager=False,
            layers=layer_facts(paths),
            calls=layer_calls(recorder, reader),
            operations=tuple(reader.operations),
            tensors=tuple(reader.tensors),
            inputs=keyed_numbers(keyed_arguments(recorder.calls[0].arguments), reader),
            outputs=outputs,
            conflicts=conflict_records(recorder, paths),
            losses=added_losses(recorder, reader),
        )
        return StepTrace(
            trace, loss, gradients, specs, reader, tuple(_keras.written_variables(reader.graph))
        )
