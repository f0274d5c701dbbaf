"""A plan while it is made, and the record that it becomes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tf_amp_kit.comparison.planning.effects import RANGE_HEADROOM, Effects, is_near_limit
from tf_amp_kit.comparison.planning.planner import Planner
from tf_amp_kit.comparison.planning.record.parts import CurvePoint, UnitEffect
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.comparison.planning.search import Outcome, Search
from tf_amp_kit.comparison.planning.step_times import measure_step_times
from tf_amp_kit.comparison.planning.tolerances import default_tolerance, rounding_error
from tf_amp_kit.data import num_samples
from tf_amp_kit.formats import format_of
from tf_amp_kit.precision.pinning.pins import Pin, Pins
from tf_amp_kit.tables import some, wrapped

__all__ = ["Draft"]

# Held-out batches exceed what was searched for by some percent.
_SEARCH_SHARE: Final = 0.8

# How many pins may be added because other batches exceed the tolerance.
_NUM_EXTENSIONS: Final = 3


class Draft:
    """A plan while it is made.

    Args:
        model_name: The model's name.
        planner: Knows the model and the batches.
        tolerance: The largest error that is allowed; None for the usual one.
        verbose: Whether to say beforehand what a tolerance out of reach will take.
    """

    def __init__(
        self, model_name: str, planner: Planner, tolerance: float | None, *, verbose: bool
    ) -> None:
        self._model_name, self._planner, self._verbose = model_name, planner, verbose
        self._half = self._planned = planner.compare_half()
        self._between = planner.between_batches()
        self._noise = planner.float32_noise()
        self._tolerance = tolerance or default_tolerance(
            planner.metric, planner.half, self._noise, self._between
        )
        self._pins: tuple[str, ...] = ()
        self._effects: Effects | None = None
        self._search: Search | None = None
        self._notes: list[str] = []
        self._num_added = 0

    def make(self, num_probes: int, seed: int, max_validations: int | None) -> None:
        """Looks for pins, unless all may run in half precision."""
        if self._is_met:
            return
        planner = self._planner
        self._effects = planner.effects(num_probes, seed)
        search = planner.search(self._effects, _SEARCH_SHARE * self._tolerance, max_validations)
        self._search = search
        if planner.metric == "output" and self._tolerance < rounding_error(planner.half):
            self._announce(len(search.prefix(search.predicted_length())))
        self._take(search.find())
        for _ in range(_NUM_EXTENSIONS):
            error = self._planned.errors.in_metric(planner.metric)
            if self._is_met or error > self._tolerance:
                break
            more = search.extend(self._pins, self._planned.held_out_culprits)
            if more is None:
                break
            self._num_added += len(more.pins) - len(self._pins)
            self._take(more)

    def finish(self, seconds: float, *, time_steps: bool) -> PrecisionPlan:
        """Makes the record."""
        planner = self._planner
        times = measure_step_times(planner, self._pins) if time_steps else None
        return PrecisionPlan(
            model_name=self._model_name,
            precision=planner.half,
            metric=planner.metric,
            tolerance=self._tolerance,
            units=tuple(self._unit_effects()),
            pins=Pins(self._model_name, tuple(self._all_pins())),
            half=self._half.errors,
            planned=self._planned.errors,
            half_held_out=self._half.held_out,
            planned_held_out=self._planned.held_out,
            between_batches=self._between,
            curve=tuple(self._curve()),
            num_batches=len(planner.batches),
            num_held_out_batches=len(planner.held_out),
            num_samples=sum(num_samples(batch) for batch in planner.batches),
            num_validations=1 if self._search is None else self._search.num_validations,
            num_passes=planner.runs.num_passes,
            seconds=seconds,
            step_times=times,
            notes=(*self._notes, *self._remarks()),
        )

    @property
    def _is_met(self) -> bool:
        metric, errors = self._planner.metric, [self._planned.errors, self._planned.held_out]
        return all(one.in_metric(metric) <= self._tolerance for one in errors if one is not None)

    def _take(self, outcome: Outcome) -> None:
        self._pins = outcome.pins
        self._planned = self._planner.compare(outcome.pins)

    def _announce(self, num_pins: int) -> None:
        """Says before the search what a tolerance out of the format's reach will take."""
        half, num_units = self._planner.half, len(self._planner.units)
        note = (
            f"A tolerance of {self._tolerance:.3g} is less than {half} makes of one number on "
            f"average, {rounding_error(half):.2g}: {num_pins} of {num_units} layers are predicted "
            "to have to stay in float32."
        )
        if self._verbose:
            print(wrapped(note), flush=True)
        self._notes.append(note)

    def _unit_effects(self) -> Iterator[UnitEffect]:
        effects, search = self._effects, self._search
        if effects is None or search is None:
            return
        units = {unit.path: unit for unit in effects.units}
        for path in dict.fromkeys([*search.order, *units]):
            is_pinned = path in self._pins
            rest = tuple(one for one in self._pins if one != path)
            measured = search.without(self._pins, path) if is_pinned else None
            yield UnitEffect(
                path=path,
                layer_class=units[path].layer_class,
                score=effects.score(path),
                largest=effects.largest.get(path, 0.0),
                reason=effects.reason(path),
                is_pinned=is_pinned,
                predicted_without=effects.predict(rest) if is_pinned else None,
                measured_without=None if measured is None else measured.error,
            )

    def _all_pins(self) -> Iterator[Pin]:
        # A fresh copy of the model needs those as well that were there before.
        for path in self._planner.pinned_before:
            layer_class = type(self._planner.runs.paths[path]).__name__
            yield Pin(path, layer_class, "pinned before", in_files="")
        if self._effects is not None:
            yield from (self._pin(self._effects, path) for path in self._pins)

    def _pin(self, effects: Effects, path: str) -> Pin:
        half = self._planner.half
        (layer_class,) = [unit.layer_class for unit in effects.units if unit.path == path]
        reasons = {
            "raises": f"raises in {half}",
            "non-finite": f"makes NaN or Inf in {half}",
            "range": f"close to the largest {half}: {effects.largest.get(path, 0.0):.3g}",
            "error": f"error {effects.score(path):.2g} alone",
        }
        return Pin(path, layer_class, reasons[effects.reason(path)], in_files="")

    def _near_the_limit(self) -> list[str]:
        """Returns the units whose numbers are about to overflow."""
        limit, largest = format_of(self._planner.half).largest, self._planner.largest
        paths = (one.path for one in self._planner.units)
        return [path for path in paths if is_near_limit(largest.get(path, 0.0), limit)]

    def _is_all_pinned(self) -> bool:
        return self._effects is not None and not self._effects.half_with(self._pins)

    def _curve(self) -> Iterator[CurvePoint]:
        effects, search = self._effects, self._search
        if effects is None or search is None:
            return
        for length in range(len(search.order) + 1):
            pins = search.prefix(length) if length else ()
            known = search.known.get(frozenset(pins))
            yield CurvePoint(
                len(pins), effects.predict(pins), None if known is None else known.error
            )

    def _remarks(self) -> Iterator[str]:
        planner = self._planner
        if planner.loss_problem:
            yield f"Only outputs were compared, for the loss raises: {planner.loss_problem}"
        for one in planner.conflicts:
            yield f"{one.path or 'The model'} raises in {planner.half}: {one.message}"
        if planner.refused:
            paths = list(planner.refused)
            yield (
                f"{some(paths)} cannot be pinned, for the code around would raise: "
                f"{planner.refused[paths[0]].rstrip('.')}."
            )
        if self._effects is not None and self._effects.unsampled:
            yield (
                f"A score of 0 says nothing of {some(sorted(self._effects.unsampled))}: it "
                f"could not be run in {planner.half} beside float32."
            )
        if planner.runs.drawing.others:
            yield (
                "Random numbers that differ between the precisions, and the errors with them, are "
                f"drawn by {some(planner.runs.drawing.others)}."
            )
        if self._planned.culprits and math.isfinite(self._planned.errors.output):
            yield (
                f"{some(self._planned.culprits)}: there is NaN or Inf in {planner.half} that no "
                "output shows."
            )
        if planner.pinned_before:
            yield f"Pinned before the plan, and still: {some(planner.pinned_before)}."
        if self._pins:
            yield (
                f"The pins were searched for {_SEARCH_SHARE:g} of the tolerance, so that other "
                "batches have room."
            )
        if self._effects is not None and not self._is_met and self._is_all_pinned():
            yield (
                f"All that can be pinned is. What is left is code outside of layers that "
                f"computes in {planner.half}, the model's own above all."
            )
        if self._effects is None and (near := self._near_the_limit()):
            yield (
                f"{some(near)}: numbers come within a factor of {RANGE_HEADROOM:g} of the largest "
                f"{planner.half}."
            )
        if self._num_added:
            yield (
                f"The last {self._num_added} of the pins were added because of the held-out "
                "batches, whose error is no longer that of unseen data."
            )
        if not planner.held_out:
            yield "There was no second batch to check the plan on."
