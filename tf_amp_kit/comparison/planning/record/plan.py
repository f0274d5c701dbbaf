"""The record of a precision plan, and how it prints itself."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, Final

from tf_amp_kit.comparison.planning.record import files, words
from tf_amp_kit.comparison.planning.record.difference import PlanDiff, compare_plans
from tf_amp_kit.comparison.planning.record.parts import (
    BatchDifference,
    CurvePoint,
    Errors,
    UnitEffect,
)
from tf_amp_kit.comparison.stored import without_numpy
from tf_amp_kit.comparison.timing import StepTimes
from tf_amp_kit.precision.pinning.pins import Pins
from tf_amp_kit.tables import wrapped
from tf_amp_kit.tracing.paths import is_below

__all__ = ["PrecisionPlan"]

_NUM_SHOWN: Final = 20


@dataclass(frozen=True)
class PrecisionPlan:
    """Which layers stay in float32, why, and what that was measured to bring.

    Printing it tells the verdict first. `apply_plan(model, plan)` puts it into effect;
    `enable_amp` and `load_model` take it, or its file, as their `pins`.

    Attributes:
        model_name: The model's name.
        precision: The half format.
        metric: What the tolerance is for: `"output"`, `"loss"` or `"gradient"`.
        tolerance: The largest error that is allowed, in that metric.
        units: All units in the order of the ranking; empty if all-half met the
            tolerance and nothing had to be ranked.
        pins: The pins, on no model; `pins.apply(model)`, `enable_amp(pins=...)`,
            `load_model(pins=...)`.
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

    Example:

    >>> from tf_amp_kit.comparison.planning.record.parts import Errors
    >>> errors = Errors(output=0.0004)
    >>> plan = PrecisionPlan(
    ...     model_name="net",
    ...     precision="float16",
    ...     metric="output",
    ...     tolerance=0.002,
    ...     units=(),
    ...     pins=Pins("net", ()),
    ...     half=errors,
    ...     planned=errors,
    ...     half_held_out=None,
    ...     planned_held_out=None,
    ...     between_batches=None,
    ...     curve=(),
    ...     num_batches=1,
    ...     num_held_out_batches=0,
    ...     num_samples=32,
    ...     num_validations=1,
    ...     num_passes=2,
    ...     seconds=0.25,
    ...     step_times=None,
    ... )
    >>> print(plan)
    All of 'net' may run in float16: output error 0.0004, tolerance 0.002.
    <BLANKLINE>
    Against float32  Batches  Output
    --------------------------------
    all in float16         1  0.0004
    <BLANKLINE>
    Made on 1 batch of 32 samples in all, with 1 validation and 2 passes, in 0.2 s.
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

    def __post_init__(self) -> None:
        # A plan is kept and saved: it must hold no model, and be what a file gives back.
        pins = replace(self.pins.detached(), model_name=self.model_name)
        object.__setattr__(self, "pins", pins)

    @property
    def error(self) -> float:
        """The error with the pins, in the plan's metric, on the batches of the search."""
        return self.planned.in_metric(self.metric)

    @property
    def held_out_error(self) -> float | None:
        """The same on the held-out batches; None if there were none."""
        held_out = self.planned_held_out
        return None if held_out is None else held_out.in_metric(self.metric)

    @property
    def meets_tolerance(self) -> bool:
        """Whether the plan's error is within the tolerance, on every batch that was run."""
        errors = [self.error] + ([] if self.held_out_error is None else [self.held_out_error])
        return all(error <= self.tolerance for error in errors)

    def units_in_float32(self) -> list[UnitEffect]:
        """Returns the units that are pinned, and those inside of such a one."""
        pinned = [unit.path for unit in self.units if unit.is_pinned]
        return [one for one in self.units if any(is_below(one.path, pin) for pin in pinned)]

    def pinned_units(self) -> list[UnitEffect]:
        """Returns the units that the plan pins, in the order of the ranking."""
        return [unit for unit in self.units if unit.is_pinned]

    def table(self, max_rows: int | None = None, *, all_units: bool = False) -> str:
        """Lays the pinned units out as a text table, in the order of the ranking.

        Args:
            max_rows: How many to show; None for all.
            all_units: Whether to show the others, too, and what each runs in.
        """
        units = self.units if all_units else self.pinned_units()
        return words.units_table(self, units[:max_rows], with_precision=all_units)

    def __str__(self) -> str:
        return self.text(_NUM_SHOWN)

    def text(self, max_rows: int | None = None, *, all_units: bool = False) -> str:
        """Lays out what is printed: the verdict, the pinned units, errors, times, notes.

        Args:
            max_rows: How many pinned units to show; None for all.
            all_units: Whether to show the others, too, and what each runs in.
        """
        units = self.units if all_units else self.pinned_units()
        parts = [wrapped(words.verdict(self))]
        if units:
            table = self.table(max_rows, all_units=all_units)
            if max_rows is not None and len(units) > max_rows:
                what = "layers" if all_units else "pinned layers"
                call = f"plan.table({'all_units=True' if all_units else ''})"
                table += f"\n... and {len(units) - max_rows} more {what}: {call} shows all."
            parts.append(table)
        parts.append(words.errors_table(self))
        sentences = [words.step_times(self), words.effort(self)]
        sentences += [f"Note: {note}" for note in self.notes]
        parts.append("\n".join(wrapped(one) for one in sentences if one))
        return "\n\n".join(parts)

    def diff(self, other: PrecisionPlan) -> PlanDiff:
        """Tells what another plan does otherwise: of another seed, format, or later weights.

        Args:
            other: The second plan.
        """
        return compare_plans(self, other)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as strict JSON, units and pins keyed by layer path.

        Numbers that are not finite are written as `"Infinity"` and `"NaN"`.

        Args:
            path: Where to; an existing file is replaced.
        """
        files.write_plan(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrecisionPlan:
        """Reads what `save` wrote.

        Args:
            path: The file.

        Returns:
            A plan equal to the one that was saved.

        Raises:
            PlanError: If the file holds something else.
            OSError: If it cannot be read.
        """
        return cls(**files.read_fields(cls, path))

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as a dictionary for strict JSON; None for what is not finite."""
        half_held_out, planned_held_out = self.half_held_out, self.planned_held_out
        between, times = self.between_batches, self.step_times
        fields = {
            "model_name": self.model_name,
            "precision": self.precision,
            "metric": self.metric,
            "tolerance": self.tolerance,
            "meets_tolerance": self.meets_tolerance,
            "units": [unit.to_dict() for unit in self.units],
            "pins": self.pins.to_dict(),
            "half": self.half.to_dict(),
            "planned": self.planned.to_dict(),
            "half_held_out": half_held_out.to_dict() if half_held_out else None,
            "planned_held_out": planned_held_out.to_dict() if planned_held_out else None,
            "between_batches": between.to_dict() if between else None,
            "curve": [point.to_dict() for point in self.curve],
            "num_batches": self.num_batches,
            "num_held_out_batches": self.num_held_out_batches,
            "num_samples": self.num_samples,
            "num_validations": self.num_validations,
            "num_passes": self.num_passes,
            "seconds": self.seconds,
            "step_times": times.to_dict() if times else None,
            "notes": list(self.notes),
        }
        return {name: without_numpy(value) for name, value in fields.items()}

    def to_json(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
