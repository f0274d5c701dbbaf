"""The record of a precision plan, and how it prints itself."""

from __future__ import annotations

from dataclasses import dataclass

from tf_amp_kit.comparison.planning.records import BatchDifference, CurvePoint, Errors, UnitEffect
from tf_amp_kit.comparison.timing import StepTimes
from tf_amp_kit.precision.pinning.pins import Pins

__all__ = ["PrecisionPlan"]


@dataclass(frozen=True)
class PrecisionPlan:
    """Which layers stay in float32, why, and what that was measured to bring.

    Attributes:
        model_name: The model's name.
        precision: The half format.
        metric: What the tolerance is for: `"output"`, `"loss"` or `"gradient"`.
        tolerance: The largest error that is allowed, in that metric.
        units: All units in the order of the ranking; empty if all-half met the
            tolerance and nothing had to be ranked.
        pins: The pins; `pins.apply(model)`, `enable_amp(pins=...)`, `load_model(pins=...)`.
        half: The errors with everything in half precision, on the batches of the search.
        planned: The errors with the pins, on the same batches.
        half_held_out: The errors with everything in half precision on batches that the
            search did not see; None if there were none.
        planned_held_out: The errors with the pins there.
        between_batches: How much two batches differ in float32; None without a loss, or
            with one batch.
        curve: The error by number of pins.
        num_batches: On how many batches the search was made.
        num_held_out_batches: How many batches it was checked on.
        num_samples: How many samples the batches of the search hold.
        num_validations: How many choices of pins were really run.
        num_passes: How many times a batch went through the model, all in all.
        seconds: How long the planning took.
        step_times: How long a step takes; None if it was not timed.
        notes: What else there is to know, in sentences.
    """

    model_name: str
    precision: str
    metric: str
    tolerance: float
    units: tuple[UnitEffect, ...]
    pins: Pins
    half: Errors
    planned: Errors
    half_held_out: Errors | None
    planned_held_out: Errors | None
    between_batches: BatchDifference | None
    curve: tuple[CurvePoint, ...]
    num_batches: int
    num_held_out_batches: int
    num_samples: int
    num_validations: int
    num_passes: int
    seconds: float
    step_times: StepTimes | None
    notes: tuple[str, ...] = ()

    @property
    def meets_tolerance(self) -> bool:
        """Whether the plan's error is within the tolerance, on every batch that was run."""
        checked = [self.planned] + ([self.planned_held_out] if self.planned_held_out else [])
        errors = [getattr(one, self.metric) for one in checked]
        return all(error <= self.tolerance for error in errors)
