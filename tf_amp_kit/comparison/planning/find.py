"""Making a plan: which layers have to stay in float32, by running the model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.comparison.planning.draft import Draft
from tf_amp_kit.comparison.planning.plan import PrecisionPlan
from tf_amp_kit.comparison.planning.planner import Planner
from tf_amp_kit.comparison.planning.tolerances import checked_metric, checked_tolerance
from tf_amp_kit.comparison.planning.trials import Runs
from tf_amp_kit.data import DEFAULT_BATCH_SIZE, Batch, as_data, batch_specs, batches_of
from tf_amp_kit.errors import InputsError, ModelError
from tf_amp_kit.inspection.expected import computes_in, expected_half
from tf_amp_kit.inspection.numerics.patterns import parse_half
from tf_amp_kit.inspection.readings import checked_loss_scale
from tf_amp_kit.precision.conversion.convert import convert_model
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import build_by_step, trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS

__all__ = ["plan_precision"]

# So many samples, in whole batches, are searched on, and as many held out.
_NUM_SAMPLES: Final = 64

_DEFAULT_PROBES: Final = 4


def plan_precision(
    model: keras.Model,
    data: Any,
    y: Any = None,
    *,
    loss: Any = None,
    precision: str | None = None,
    tolerance: float | None = None,
    metric: str = "output",
    validation: Any = None,
    probes: int = _DEFAULT_PROBES,
    max_validations: int | None = None,
    seed: int = 0,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    time_steps: bool = True,
    verbose: int = 1,
) -> PrecisionPlan:
    """Finds the fewest layers that have to stay in float32 for a model to keep its results."""
    started = time.perf_counter()
    check_keras_model(model)
    metric = checked_metric(metric)
    given = None if tolerance is None else checked_tolerance(tolerance)
    _check_count(probes, "probes")
    if max_validations is not None:
        _check_count(max_validations, "max_validations")
    asked = None if precision is None else parse_half(precision)
    data = as_data(data, y)
    build_by_step(model, data)
    layers = layer_facts(LayerPaths(model))
    half = expected_half(asked, layers)
    has_loss = _has_loss(model, data, loss, metric)
    half_model = model if computes_in(half, layers) else convert_model(model, half)
    search, held_out = _split(data, validation, batch_size)
    drawing = DrawingLayers.of(
        half_model,
        trace_step(model, data, in_float32=True, until=OUTPUTS, training=False),
    )
    planner = Planner(
        runs=Runs(half_model, batch_specs(data), loss, drawing),
        half=half,
        metric=metric,
        batches=search,
        held_out=held_out,
        has_loss=has_loss,
        loss_scale=checked_loss_scale(half_model, None) if has_loss else 1.0,
    )
    draft = Draft(model.name, planner, given, verbose=bool(verbose))
    draft.make(probes, seed, max_validations)
    plan = draft.finish(time.perf_counter() - started, time_steps=time_steps)
    if verbose:
        print(plan)
    return plan


def _has_loss(model: Any, data: Any, loss: Any, metric: str) -> bool:
    _, y, _ = batch_specs(data)
    has_loss = loss is not None or (model.compiled and y is not None)
    if not has_loss and metric != "output":
        raise ModelError(
            f"The metric {metric!r} needs a loss. Expected `loss=` or a compiled model, and data "
            f"with targets. Received: {type(model).__name__} named {model.name!r}, loss=None."
        )
    return has_loss


def _split(data: Any, validation: Any, batch_size: int | None) -> tuple[list[Batch], list[Batch]]:
    """Takes batches to search on, and others to check on, as far as there are any."""
    batches = batches_of(data, batch_size)
    search = list(_enough(batches))
    if validation is not None:
        return search, list(_enough(batches_of(as_data(validation), batch_size)))
    held_out = list(_enough(batches))
    if not held_out and len(search) > 1:
        middle = len(search) // 2
        return search[:-middle], search[-middle:]
    return search, held_out


def _enough(batches: Iterable[Batch]) -> Iterator[Batch]:
    num_samples = 0
    for batch in batches:
        yield batch
        num_samples += int(tf.nest.flatten(batch.x)[0].shape[0])
        if num_samples >= _NUM_SAMPLES:
            return


def _check_count(value: Any, argument: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise InputsError(f"Expected a whole number from 1 up. Received: {argument}={value!r}.")
