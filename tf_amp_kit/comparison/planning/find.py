"""Making a plan: which layers have to stay in float32, by running the model."""

from __future__ import annotations

import time
from numbers import Integral
from typing import Any, Final

import keras

from tf_amp_kit.comparison.planning.draft import Draft
from tf_amp_kit.comparison.planning.planner import Planner
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.comparison.planning.running.runs import Runs
from tf_amp_kit.comparison.planning.running.samples import common_specs, split_batches
from tf_amp_kit.comparison.planning.tolerances import checked_metric, checked_tolerance
from tf_amp_kit.data import (
    DEFAULT_BATCH_SIZE,
    as_data,
    batch_specs,
)
from tf_amp_kit.errors import InputsError, ModelError
from tf_amp_kit.inspection.expected import computes_in, expected_half
from tf_amp_kit.inspection.numerics.patterns import parse_half
from tf_amp_kit.inspection.readings import checked_loss_scale
from tf_amp_kit.precision.conversion.convert import convert_model
from tf_amp_kit.precision.layer_policies import half_variables
from tf_amp_kit.progress import working
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import build_by_step

__all__ = ["plan_precision"]

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
    """Finds which layers have to stay in float32 for a model to keep its results.

    Use it on a trained model before half precision goes into production, where pinning
    by rule is too much or not enough. It says first what all of the model in half
    precision costs, and stops there if that is within the tolerance. Otherwise it ranks
    what can be pinned, searches a small set of pins, runs the model with them, drops
    those that are not needed, and checks the rest on batches that it did not search on.

    Method. The model runs once in float32 while every unit, a layer or a composite, runs
    in half precision beside it on the same inputs: the difference d is the error that it
    makes by itself. A backward pass from random signs r on the outputs y (r / |y| for
    each output) gives g, the gradient at what the unit returned, and s = sum(g d) over
    each sample. The mean of s^2 over the signs is the squared norm of what d comes to at
    the outputs (the trace of J d d' J', estimated as by M. F. Hutchinson, 1989), so that

        score = sqrt(sum over samples of the mean over probes of s^2)

    is the relative error with this unit alone in half precision, up to first order.
    For the loss, g is its gradient, and s is added up over the samples of a batch. For
    the weight gradients, r multiplies them, so that g is a gradient of a gradient, and
    what a unit gets wrong in its backward pass is compared too; the samples of a batch
    add up in s there, and four times as many probes are made.
    The signs of four probes are orthogonal to each other. Errors of several units have
    random signs, so the predicted error of a choice is the root of the sum of their
    squares; a rounding that the unit before has done already, because it is in half
    precision too, is taken out of the samples. The order of the pins follows from that:
    first what makes NaN or Inf, then what comes within a factor of 8 of the format's
    largest number, then whatever takes most off the prediction per layer. The search
    aims at 0.8 of the tolerance, starts where the prediction says, corrects it by each
    run, and drops pins one at a time.

    What it cannot see: how errors of units amplify each other, beyond first order (each
    choice is run, which tells); other batches than these, and what training does to the
    weights; code that runs in training mode only, for dropout, the statistics of
    normalizations and random layers are held still; samples that influence each other
    within a batch, which the scores take for independent; what has no gradient, such as
    an argmax; layers in the body of a loop, which are pinned as the layer that has it;
    what the model's own code computes in half precision outside of layers, which no pin
    reaches; for gradients, where a ReLU or a maximum jumps, and errors of weights that
    several layers share.

    A model that computes in the wanted format is looked at as it is, pins included. Of
    another model a copy is made, as by `convert_model`. Weights, statistics, policies,
    seeds and compiled functions are as before afterwards, whatever happens.

    Args:
        model: A Keras model, trained. It need not be compiled for the metric `"output"`.
        data: `(x, y[, sample_weight])` as arrays or tensors, a dataset or a Keras
            `PyDataset`, or `x` alone. The first 64 samples, or as many whole batches as
            hold so many, are searched on, and as many more are held out: they should
            be mixed.
        y: The targets, if `data` is `x`.
        loss: What `compile` takes as `loss`; None for the compiled one. A plain function
            is called as a loop of your own would, `loss(y, y_pred)`.
        precision: `"fp16"` or `"bf16"`. None means what `enable_amp` recorded, else the
            global policy's, else what most of the model computes in, else float16.
        tolerance: The largest error in the metric. None means 0.002 in float16 and 0.02
            in bfloat16, which ordinary models stay below, or ten times what the outputs
            move by if the inputs move by a float32 rounding; for the loss and the
            gradients no less than a tenth of the difference between two batches.
        metric: `"output"`: the norm of the outputs' difference over the norm of those in
            float32, of several outputs the root of the summed squares; `"loss"`: the
            change of the loss over its magnitude; `"gradient"`: the norm of the weight
            gradients' difference over the norm of those in float32.
        validation: Data to check the plan on, instead of the next batches of `data`; with
            targets and sample weights if those have some.
        probes: How many random backward passes there are per batch.
        max_validations: How many choices of pins may be run. None means 7, and one per
            pin.
        seed: Chooses the random signs.
        batch_size: How many samples of arrays are a batch; None for all of them.
        time_steps: Whether to time a step in float32, in half precision and with the
            plan.
        verbose: 1 prints the plan, 0 is silent.

    Returns:
        A `PrecisionPlan`: `plan.pins`, `save`, and `tf_amp_kit.apply_plan(model, plan)`.

    Raises:
        ModelError: If it is not a Keras 3 model, if it has not what the metric compares,
            if it stores variables in half precision, or if nothing in it can be half.
        InputsError: If the data cannot be read, do not fit the model, or make NaN or Inf
            in float32 already, or if a count is no whole number.
        PrecisionError: If the precision is unknown or no half format, if the metric is
            unknown, or if the tolerance is no positive number.
        TracingError: If the model's Python code needs values.
        ConversionError: If no copy of the model can be made.

    Example:

    >>> import numpy as np
    >>> layers = [keras.layers.Dense(8, name="body"), keras.layers.Dense(1, name="head")]
    >>> model = keras.Sequential([keras.Input((4,)), *layers], name="net")
    >>> x = np.random.default_rng(0).normal(size=(128, 4)) * 1e4
    >>> model.layers[0].set_weights([np.full((4, 8), 1e3), np.zeros(8)])
    >>> plan = plan_precision(model, x, precision="fp16", time_steps=False, verbose=0)
    >>> plan.pins.paths, plan.meets_tolerance
    (('body', 'head'), True)
    """
    started = time.perf_counter()
    check_keras_model(model)
    metric = checked_metric(metric)
    given = None if tolerance is None else checked_tolerance(tolerance)
    _check_count(probes, "probes", 1)
    _check_count(seed, "seed", 0)
    if max_validations is not None:
        _check_count(max_validations, "max_validations", 1)
    asked = None if precision is None else parse_half(precision)
    data = as_data(data, y)
    build_by_step(model, data)
    layers = layer_facts(LayerPaths(model))
    half = expected_half(asked, layers)
    has_loss = _has_loss(model, data, loss, metric)
    half_model = model if computes_in(half, layers) else convert_model(model, half)
    _check_weights(half_model, half)
    search, held_out = split_batches(data, validation, batch_size)
    planner = Planner(
        runs=Runs(half_model, common_specs(model, data, [*search, *held_out]), loss),
        half=half,
        metric=metric,
        batches=search,
        held_out=held_out,
        has_loss=has_loss,
        loss_scale=checked_loss_scale(half_model, None) if has_loss else 1.0,
    )
    draft = Draft(model.name, planner, given, verbose=bool(verbose))
    with working("Planning: running both precisions", is_shown=bool(verbose)) as say:
        draft.make(probes, seed, max_validations)
        say("Planning: timing steps" if time_steps else "Planning")
        plan = draft.finish(time.perf_counter() - started, time_steps=time_steps)
    if verbose:
        print(plan)
    return plan


def _has_loss(model: Any, data: Any, loss: Any, metric: str) -> bool:
    _, y, _ = batch_specs(data)
    has_loss = y is not None and (loss is not None or model.compiled)
    if not has_loss and metric != "output":
        raise ModelError(
            f"The metric {metric!r} needs a loss. Expected `loss=` or a compiled model, and data "
            f"with targets. Received: {type(model).__name__} named {model.name!r}, loss=None."
        )
    return has_loss


def _check_count(value: Any, argument: str, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputsError(
            f"Expected a whole number from {least} up. Received: {argument}={value!r}."
        )


def _check_weights(half_model: Any, half: str) -> None:
    stored = half_variables(half_model)
    if stored:
        raise ModelError(
            f"The model stores variables in {stored[0].dtype}: there are no float32 weights to "
            "compare with, or to keep. Expected a float32 or mixed model. Received: "
            f"{half_model.name!r} with {len(stored)} such variables. Convert it first: "
            f'`tf_amp_kit.convert_model(model, "mixed_{half}")`.'
        )
