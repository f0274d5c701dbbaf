"""Tracing a whole train step: forward pass, loss and gradients.

What the forward pass makes and the gradients read has to be kept in between:
that is what training needs memory for, and what half precision halves.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.data import batch_specs
from tf_amp_kit.errors import ModelError, TracingError
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.inputs import CallSpecs, accepts_training, candidate_specs
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.numbering import keyed_arguments, keyed_numbers, numbers
from tf_amp_kit.tracing.observe import observing
from tf_amp_kit.tracing.paths import LayerPaths, join
from tf_amp_kit.tracing.reading import (
    GraphReader,
    added_losses,
    layer_calls,
)
from tf_amp_kit.tracing.recorder import Recorder
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.saved import SavedTensor, saved_tensors
from tf_amp_kit.tracing.state import undisturbed

__all__ = ["StepTrace", "trace_step"]

LOSS_PATH: Final = "@loss"
GRADIENTS_PATH: Final = "@gradients"

_NEEDS_VALUES = (tf.errors.OperatorNotAllowedInGraphError, NotImplementedError)


@dataclass(frozen=True)
class StepTrace:
    """The graph of one train step, without the optimizer's update.

    Attributes:
        trace: The records of the step. The loss and the gradients are calls of
            their own, `@loss` and `@gradients`, and outputs of these names.
        loss: The tensor number of the loss, scaled if the optimizer scales.
        gradients: The tensor number of each gradient by the variable's path; of
            a sparse gradient its values; None where nothing depends on it.
    """

    trace: ModelTrace
    loss: int
    gradients: dict[str, int | None]

    def is_gradient(self, op: Operation) -> bool:
        """Tells whether an operation belongs to the backward pass."""
        return self.phase(op) == GRADIENTS_PATH

    def phase(self, op: Operation) -> str:
        """Returns `"@loss"`, `"@gradients"`, or an empty string for the model."""
        call = self.trace.call_of(op)
        outermost = "" if call is None else [*self.trace.enclosing(call)][-1].path
        return outermost if outermost in (LOSS_PATH, GRADIENTS_PATH) else ""

    @cached_property
    def saved_tensors(self) -> tuple[SavedTensor, ...]:
        """What the backward pass reads of the forward pass, in order of making.

        Each buffer counts once: reshaped or renamed, it is the same memory.
        """
        return saved_tensors(self.trace, self.is_gradient)


class Loss:
    """Stands in the record for the call of the loss."""

    name = LOSS_PATH


class Gradients:
    """Stands in the record for the backward pass."""

    name = GRADIENTS_PATH


def trace_step(model: Any, data: Any, *, loss: Any = None) -> StepTrace:
    """Traces a train step into a graph that never runs, and leaves the model as it was.

    The update of the weights is left out: it would create the optimizer's
    variables. A `train_step` of the model's own is not called either.

    Args:
        model: A Keras model, compiled unless `loss` is given.
        data: `(x, y[, sample_weight])` as arrays or specs, or a dataset.
        loss: What `compile` takes as `loss`. None for the compiled loss.

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
    specs = next(iter(candidate_specs(model, x)))
    paths = LayerPaths(model)
    recorder = Recorder(paths)
    with undisturbed(paths), _keras.fresh_loss(model, loss):
        return _trace(model, recorder, specs, (y, sample_weight))


def _trace(model: Any, recorder: Recorder, specs: CallSpecs, targets: tuple[Any, Any]) -> StepTrace:
    training = {"training": True} if accepts_training(model) else {}
    made: dict[str, Any] = {}

    def step(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
        with observing(recorder):
            with tf.GradientTape() as tape:
                made["outputs"] = model(x, **training)
                made["loss"] = recorder.run(
                    Loss(), _compute_loss, (model, x, y, made["outputs"], sample_weight), {}
                )
            variables = model.trainable_variables
            gradients = recorder.run(
                Gradients(), lambda _, *args: tape.gradient(*args), (made["loss"], variables), {}
            )
        made["gradients"] = list(zip(variables, gradients, strict=True))
        return made["loss"]

    given = {"y": targets[0], "sample_weight": targets[1]}
    kwargs = {name: value for name, value in given.items() if value is not None}
    try:
        graph = _keras.trace_to_graph(step, specs.args, kwargs)
    except _NEEDS_VALUES as error:
        raise TracingError(
            f"The train step cannot be traced: the Python code of {type(model).__name__} "
            "needs values. Use `keras.ops.cond` and `keras.ops.while_loop` there. "
            f"Received: {error}"
        ) from error
    return _freeze(recorder, GraphReader(graph, recorder.calls), made)


def _compute_loss(_: Loss, model: Any, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> Any:
    parameters = inspect.signature(model.compute_loss).parameters
    training = {"training": True} if "training" in parameters else {}
    loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, **training)
    optimizer = getattr(model, "optimizer", None)
    return loss if optimizer is None else optimizer.scale_loss(loss)


def _freeze(recorder: Recorder, reader: GraphReader, made: dict[str, Any]) -> StepTrace:
    paths = recorder.paths
    names = _variable_paths(paths) if paths is not None else {}
    gradients = {
        names.get(id(variable), variable.name): next(
            iter(numbers(getattr(gradient, "values", gradient), reader)), None
        )
        for variable, gradient in made["gradients"]
    }
    (loss,) = numbers(made["loss"], reader)
    outputs = keyed_numbers(made["outputs"], reader) | {LOSS_PATH: loss}
    outputs |= {
        join(GRADIENTS_PATH, name): key for name, key in gradients.items() if key is not None
    }
    trace = ModelTrace(
        training=True,
        is_eager=False,
        layers=layer_facts(paths) if paths is not None else (),
        calls=layer_calls(recorder, reader),
        operations=tuple(reader.operations),
        tensors=tuple(reader.tensors),
        inputs=keyed_numbers(keyed_arguments(recorder.calls[0].arguments), reader),
        outputs=outputs,
        losses=added_losses(recorder, reader),
    )
    return StepTrace(trace=trace, loss=loss, gradients=gradients)


def _variable_paths(paths: LayerPaths) -> dict[int, str]:
    names: dict[int, str] = {}
    for path, layer in paths:  # from the model down: the innermost owner names it last
        for variable in layer.weights:
            names[id(variable)] = join(path, variable.name)
    return names
