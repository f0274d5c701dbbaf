"""The one call that puts a precision plan into effect."""

from __future__ import annotations

import difflib
import os
import warnings
from typing import Any, Final

import keras

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.errors import PinError, PinWarning, PlanError
from tf_amp_kit.formats import HALF_PRECISIONS
from tf_amp_kit.precision.pinning.applying import Outcome
from tf_amp_kit.precision.pinning.pins import Pins
from tf_amp_kit.precision.pinning.registry import pinned_paths
from tf_amp_kit.precision.pinning.transaction import Transaction
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["apply_plan"]

_NUM_NAMED: Final = 8
# Of `difflib`: how alike a path has to be to be taken for a misspelt one.
_SIMILAR: Final = 0.4


def apply_plan(
    model: keras.Model, plan: PrecisionPlan | str | os.PathLike[str], *, inputs: Any = None
) -> Pins:
    """Keeps those layers of a half-precision model in float32 that a plan pins.

    Call it on a model that computes in the plan's precision: built under
    `amp_scope(plan.precision)`, made by `convert_model`, or loaded. Weights, optimizer
    and compiled losses stay.

    Args:
        model: A Keras model with the same layer paths as the one that was planned for:
            itself in half precision, a second build, a loaded one.
        plan: What `plan_precision` returned, or the path of the file that its `save`
            wrote.
        inputs: Example inputs, only for a model that does not know its own.

    Returns:
        The pins of that model; `undo()` takes them back. A plan without pins gives
        none, and changes nothing.

    Raises:
        PinError: If layers that the plan pins are not there, or are of another class; if
            nothing in the model computes in half precision; or as in `pin_float32`.
        PlanError: If the file holds no plan, or `plan` is something else.
        ModelError: If it is not a Keras 3 model.
        OSError: If the file cannot be read.

    Example:

    >>> from tf_amp_kit.comparison.planning.record.parts import Errors
    >>> from tf_amp_kit.precision.pinning.pins import Pin
    >>> bad, good = Errors(output=0.5), Errors(output=0.001)
    >>> pins = Pins("net", (Pin("head", "Dense", "error"),))
    >>> plan = PrecisionPlan(
    ...     "net", "float16", "output", 0.002, (), pins, bad, good, None, None, None, (),
    ...     num_batches=1, num_held_out_batches=0, num_samples=32, num_validations=2,
    ...     num_passes=4, seconds=0.5, step_times=None,
    ... )  # fmt: skip
    >>> layers = [
    ...     keras.layers.Dense(8, name="body", dtype="mixed_float16"),
    ...     keras.layers.Dense(1, name="head", dtype="mixed_float16"),
    ... ]
    >>> model = keras.Sequential([keras.Input((4,)), *layers], name="net")
    >>> apply_plan(model, plan).paths
    ('head',)
    >>> [layer.compute_dtype for layer in layers]
    ['float16', 'float32']
    """
    check_keras_model(model)
    chosen = _parsed(plan)
    paths = LayerPaths(model)
    _check_paths(model, paths, chosen)
    remark = _check_precision(model, paths, chosen)
    if chosen.pins.pins:
        return chosen.pins.apply(model, inputs=inputs)
    remarks = ("The plan pins nothing.", *([remark] if remark else []))
    # Setting no pins would still make the model's functions anew.
    return Pins.of(model, Outcome((), remarks, Transaction(model, keras.config.dtype_policy())))


def _parsed(plan: Any) -> PrecisionPlan:
    if isinstance(plan, PrecisionPlan):
        return plan
    if isinstance(plan, str | os.PathLike):
        return PrecisionPlan.load(plan)
    raise PlanError(
        "Not a precision plan. Expected what `plan_precision` returned, or the path of a file "
        f"that its `save` wrote. Received: plan={plan!r}."
    )


def _check_paths(model: Any, paths: LayerPaths, plan: PrecisionPlan) -> None:
    known = [path for path, _ in paths]
    missing = [path for path in plan.pins.paths if path not in known]
    if not missing:
        return
    near = dict.fromkeys(
        match
        for path in missing
        for match in difflib.get_close_matches(path, known[1:], n=1, cutoff=_SIMILAR)
    )
    hint = f"Near misses: {some(near, _NUM_NAMED)}." if near else f"It has {some(known[1:])}."
    raise PinError(
        f"The plan is of another model. Expected layers {some(missing, _NUM_NAMED)}, which the "
        f"plan of {plan.model_name!r} pins. Received: {model.name!r}. {hint}"
    )


def _check_precision(model: Any, paths: LayerPaths, plan: PrecisionPlan) -> str:
    """Refuses or warns of a model in another precision; returns what to know of it."""
    # The policy of a graph model does nothing.
    used = {layer.compute_dtype for _, layer in paths if not _keras.is_functional(layer)}
    halves = [one for one in HALF_PRECISIONS if one in used]
    if plan.precision in halves:
        return ""
    if halves:
        warnings.warn(
            f"The plan is for {plan.precision}, and {model.name!r} computes in {halves[0]}: what "
            "was measured for the one does not hold for the other. Plan anew: "
            f'`plan_precision(model, data, precision="{halves[0]}")`.',
            PinWarning,
            stacklevel=stacklevel_of_user(),
        )
        return ""
    if pinned_paths(paths):  # it was in half, and all of it is pinned
        return ""
    way_out = (
        f'Build it under `amp_scope("{plan.precision}")`, or make a twin: '
        f'`convert_model(model, "{plan.precision}")`.'
    )
    if not plan.pins.pins:
        return f"No layer of {model.name!r} computes in {plan.precision}. {way_out}"
    raise PinError(
        f"Pins would do nothing. Expected a model that computes in {plan.precision}. "
        f"Received: {model.name!r}, in which no layer does. {way_out}"
    )
