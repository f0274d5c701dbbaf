"""What a memory estimate is asked for, checked and looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.comparison.memory.state import optimizer_of
from tf_amp_kit.comparison.memory.targets import guessed_targets
from tf_amp_kit.data import batch_specs, input_specs, with_fixed_shape
from tf_amp_kit.errors import InputsError, ModelError, OptimizerError
from tf_amp_kit.formats import is_half, parse_precision
from tf_amp_kit.inspection.expected import computes_in, usual_precision
from tf_amp_kit.precision.conversion.compiling import inner_optimizer_of, scales_loss
from tf_amp_kit.precision.conversion.convert import convert_model
from tf_amp_kit.precision.layer_policies import half_variables
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.inputs import candidate_specs, knows_inputs
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import build_by_step, trace_step
from tf_amp_kit.tracing.step_phases import Observers, StepTensors
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["MOST_SAMPLES", "Request", "checked_count"]

#: The most that anything counts: TensorFlow's kernels count with 32 bits.
MOST_SAMPLES: Final = 2**31 - 1


@dataclass(frozen=True)
class Request:
    """A train step to look at, for any batch size.

    Attributes:
        model: The model, or a twin in another precision.
        name: The name of the model that was given.
        precision: What it is looked at in.
        in_float32: Whether its half layers compute in float32 this once.
        specs: Inputs, targets and sample weights.
        loss: What `trace_step` takes.
        optimizer: An optimizer of its own, without slots.
        num_replicas: How many devices share a batch.
        notes: What was taken for granted, in sentences.
    """

    model: Any
    name: str
    precision: str
    in_float32: bool
    specs: tuple[Any, Any, Any]
    loss: Any
    optimizer: Any
    num_replicas: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: Any,
        data: Any,
        *,
        precision: str | None,
        optimizer: Any,
        loss: Any,
        num_replicas: int | None,
        accumulation_steps: int | None,
    ) -> Request:
        """Checks what a user asked for, and makes the model that it is about.

        Raises:
            AmpError: As `estimate_memory`.
        """
        check_keras_model(model)
        wanted = None if precision is None else parse_precision(precision, argument="precision")
        if accumulation_steps is not None:
            checked_count(accumulation_steps, "accumulation_steps")
        if num_replicas is not None:
            checked_count(num_replicas, "num_replicas")
        found = _optimizer(model, optimizer, accumulation_steps)
        _check_loss(model, loss)
        specs = _specs(model, data, loss)
        build_by_step(model, tuple(one for one in specs if one is not None))
        looked_at, name, in_float32 = _in_precision(model, wanted)
        replicas = int(num_replicas or model.distribute_strategy.num_replicas_in_sync)
        if wanted is not None or optimizer is not None or not model.compiled:
            found = _with_right_scaling(found, name, model if optimizer is None else None)
        return cls(
            model=looked_at,
            name=model.name,
            precision=name,
            in_float32=in_float32,
            specs=specs,
            loss=loss,
            optimizer=found,
            num_replicas=replicas,
            notes=_notes(model, data),
        )

    @property
    def fixed_size(self) -> int | None:
        """How many samples a batch has to have over all replicas, None for any number."""
        inputs = self.model.inputs if knows_inputs(self.model) else ()
        sizes = {one.shape[0] for one in inputs} - {None}
        return self.num_replicas * int(max(sizes)) if sizes else None

    def check_size(self, batch_size: int) -> None:
        """Checks that the model takes a batch of a size.

        Raises:
            InputsError: If its batch is fixed to another one.
        """
        fixed = self.fixed_size
        if fixed is not None and batch_size != fixed:
            raise InputsError(
                f"The model's batch is fixed to {fixed // self.num_replicas} samples on each "
                f"replica. Expected batch_size={fixed}. Received: batch_size={batch_size}. Leave "
                "out the `batch_size` of its Input to try others."
            )

    def sized_specs(self, batch_size: int) -> list[Any]:
        """Returns the specs of what one replica gets of a batch."""
        size = -(-batch_size // self.num_replicas)
        return [_sized(one, size) for one in self.specs if one is not None]

    def trace(self, batch_size: int, on_update: Callable[[StepTensors], None]) -> StepTrace:
        """Traces the train step of one replica for a batch size.

        Args:
            batch_size: Samples over all replicas.
            on_update: Adds the update of the weights.
        """
        data = tuple(self.sized_specs(batch_size))
        observers = Observers(on_update=on_update)
        return trace_step(
            self.model, data, loss=self.loss, in_float32=self.in_float32, observers=observers
        )


def checked_count(value: Any, argument: str) -> int:
    """Checks that a number counts something.

    Raises:
        InputsError: If it is no whole number from 1 to `MOST_SAMPLES`.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= MOST_SAMPLES:
        raise InputsError(
            f"Expected a whole number from 1 up, to {MOST_SAMPLES}. Received: {argument}={value!r}."
        )
    return int(value)


def _optimizer(model: Any, optimizer: Any, accumulation_steps: int | None) -> Any:
    compiled = getattr(model, "optimizer", None)
    if optimizer is None and compiled is None:
        raise OptimizerError(
            "The model has no optimizer. Expected a compiled model or `optimizer=`. "
            f"Received: {type(model).__name__} named {model.name!r}, optimizer=None."
        )
    return optimizer_of(compiled if optimizer is None else optimizer, accumulation_steps)


def _check_loss(model: Any, loss: Any) -> None:
    if loss is None and not model.compiled:
        raise ModelError(
            "The model has no loss. Expected a compiled model or `loss=`. "
            f"Received: {type(model).__name__} named {model.name!r}, loss=None."
        )
    for one in tf.nest.flatten(loss):
        try:
            keras.losses.get(one)
        except (ValueError, TypeError) as error:
            raise InputsError(
                "Expected a loss as `compile` takes it: a name of Keras's, a keras.losses.Loss or "
                f"a function. Received: loss={one!r}."
            ) from error


def _with_right_scaling(optimizer: Any, precision: str, owner: Any) -> Any:
    """Makes an optimizer scale the loss as `compile` and `convert_model` do.

    Args:
        optimizer: The optimizer.
        precision: What it is for.
        owner: The model that it was compiled for, if any: what scales the loss for
            float16 comes off when the model leaves it.
    """
    if precision == "float16":
        is_scaled = scales_loss(optimizer) or optimizer.loss_scale_factor is not None
        return optimizer if is_scaled else keras.optimizers.LossScaleOptimizer(optimizer)
    was_half = owner is not None and computes_in("float16", layer_facts(LayerPaths(owner)))
    return inner_optimizer_of(optimizer) if was_half else optimizer


def _notes(model: Any, data: Any) -> tuple[str, ...]:
    """Says what shape was assumed where the model leaves it open."""
    inputs = model.inputs if data is None and knows_inputs(model) else ()
    is_open = any(None in one.shape[1:] for one in inputs)
    if not is_open:
        return ()
    specs = [with_fixed_shape(input_specs(one), 2) for one in inputs]
    shapes = ", ".join(str((None, *one.shape[1:])) for one in specs)
    return (
        f"the inputs' shapes are open, and {shapes} is assumed: pass `data=` with arrays or specs "
        "of the shape that you train on.",
    )


def _specs(model: Any, data: Any, loss: Any) -> tuple[Any, Any, Any]:
    if data is not None:
        x, y, sample_weight = batch_specs(data)
        if y is None:
            y = guessed_targets(model, x, loss)
        return x, y, sample_weight
    calls = next(iter(candidate_specs(model, None)))
    x = calls.args[0] if calls.args else calls.kwargs
    return x, guessed_targets(model, x, loss), None


def _in_precision(model: Any, wanted: str | None) -> tuple[Any, str, bool]:
    """Finds what to look at: a model, what its precision is, and whether to force float32.

    What computes in float64 stays so: no conversion changes it.
    """
    layers = layer_facts(LayerPaths(model))
    if wanted is None or usual_precision(layers) == "float64":
        return model, usual_precision(layers), False
    if is_half(wanted):
        is_there = computes_in(wanted, layers)
        return (model if is_there else convert_model(model, wanted)), wanted, False
    if half_variables(model):
        return convert_model(model, wanted), wanted, False
    return model, wanted, any(is_half(one.compute_dtype) for one in layers)


def _sized(specs: Any, size: int) -> Any:
    def open_first(spec: Any) -> Any:
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank:
            return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)
        return spec

    change: Callable[[Any], Any] = open_first
    return with_fixed_shape(tf.nest.map_structure(change, specs), size)
