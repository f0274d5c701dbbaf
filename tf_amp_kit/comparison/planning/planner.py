"""The steps of making a plan, from the first comparison to the last check."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit.comparison.planning.culprits import find_culprits
from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.probing import Probing
from tf_amp_kit.comparison.planning.ranking import rank_units
from tf_amp_kit.comparison.planning.records import BatchDifference, Errors
from tf_amp_kit.comparison.planning.results import (
    Results,
    difference_of_batches,
    errors_between,
    norm,
)
from tf_amp_kit.comparison.planning.search import Outcome, Search
from tf_amp_kit.comparison.planning.trials import Run, Runs
from tf_amp_kit.comparison.planning.units import Unit, find_units, innermost, topmost
from tf_amp_kit.data import Batch
from tf_amp_kit.errors import InputsError
from tf_amp_kit.precision.pinning.effects import Harm, find_conflicts
from tf_amp_kit.tracing.step_phases import GRADIENTS, LOSS, OUTPUTS

__all__ = ["Planner"]

#: How far a metric makes a step go.
_UNTIL: Final = {"output": OUTPUTS, "loss": LOSS, "gradient": GRADIENTS}


@dataclass
class Planner:
    """Compares, ranks and searches on some batches.

    Args:
        runs: The model in half precision.
        half: The half format.
        metric: `"output"`, `"loss"` or `"gradient"`.
        batches: The batches of the search.
        held_out: Other batches, to check on.
        has_loss: Whether there is a loss, so that gradients can be compared.
        loss_scale: What the loss is multiplied by in half precision.
    """

    runs: Runs
    half: str
    metric: str
    batches: Sequence[Batch]
    held_out: Sequence[Batch]
    has_loss: bool
    loss_scale: float
    _lifts: dict[str, str] = field(default_factory=dict)
    #: Units that cannot be pinned, with the reason.
    refused: dict[str, str] = field(default_factory=dict)
    #: Units whose half-precision code raises, with what it says.
    raising: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        until = GRADIENTS if self.has_loss else OUTPUTS
        self._half_run = self.runs.with_pins((), until, None)
        self.units: tuple[Unit, ...] = find_units(self._half_run.step, self.runs.paths)
        self._paths = {unit.path for unit in self.units}
        self._wide_run = self.runs.float32(until, self._paths)
        self.wide = [self._wide_run.on(batch) for batch in self.batches]
        self.wide_held_out = [self._wide_run.on(batch) for batch in self.held_out]
        _check_float32([*self.wide, *self.wide_held_out])

    def compare_half(self) -> tuple[Errors, Errors | None]:
        """Compares all in half precision with float32, on the batches and on others."""
        self._half = self._results(self._half_run, self.batches)
        others = self._results(self._half_run, self.held_out)
        return errors_between(self.wide, self._half), self._held_out_errors(others)

    def compare(self, pinned: Collection[str]) -> tuple[Errors, Errors | None]:
        """Does the same with some pins."""
        run = self.runs.with_pins(pinned, GRADIENTS if self.has_loss else OUTPUTS, self._paths)
        results = self._results(run, self.batches)
        others = self._results(run, self.held_out)
        return errors_between(self.wide, results), self._held_out_errors(others)

    def between_batches(self) -> BatchDifference | None:
        """Compares two batches in float32."""
        batches = [*self.wide, *self.wide_held_out]
        return difference_of_batches(batches[0], batches[-1]) if len(batches) > 1 else None

    def float32_noise(self) -> float:
        """Returns how far outputs move if float inputs move by a float32 rounding."""
        moved = [self._wide_run.on(_nudged(batch)) for batch in self.batches[:1]]
        return errors_between(self.wide[:1], moved).output

    def effects(self, num_probes: int, seed: int) -> Effects:
        """Samples what each unit does."""
        weights = {key: _inverse_norm(self.wide, key) for key in self.wide[0].outputs}
        probing = Probing(
            self.runs,
            self.units,
            self.half,
            self.metric,
            weights,
            inverse_norm=_inverse(norm(one for r in self.wide for one in r.gradients.values())),
            loss_scale=self._half_run.fitting_scale,
        )
        effects, self.raising = probing.effects(self.batches, num_probes, seed, self.largest)
        return effects

    def search(self, effects: Effects, target: float, max_validations: int | None) -> Search:
        """Prepares a search for the pins."""
        first = Outcome((), self._error(self._half), self._culprits(self._half, self._half_run))
        return Search(
            order=rank_units(effects, tuple(self.refused)),
            predict=effects.predict,
            run=self._outcome,
            target=target,
            first=first,
            max_validations=max_validations,
        )

    @cached_property
    def largest(self) -> dict[str, float]:
        """The largest magnitude that each unit takes or returns in float32."""
        found: dict[str, float] = {}
        for results in self.wide:
            for seen in results.extremes:
                found[seen.path] = max(found.get(seen.path, 0.0), seen.largest)
        return found

    def _outcome(self, wanted: Sequence[str]) -> Outcome:
        """Runs the model with some pins, or with what they have to be replaced by."""
        while True:
            pins = self._lifted(wanted)
            run = self.runs.with_pins(pins, _UNTIL[self.metric], self._paths)
            before, after = self._half_run.step.trace, run.step.trace
            harms = list(find_conflicts(before, after, pins))
            if not harms:
                break
            self._learn(harms)
        results = self._results(run, self.batches)
        return Outcome(pins, self._error(results), self._culprits(results, run))

    def _lifted(self, pins: Sequence[str]) -> tuple[str, ...]:
        lifted = []
        for path in pins:
            while path in self._lifts:
                path = self._lifts[path]
            if path not in self.refused:
                lifted.append(path)
        return topmost(lifted)

    def _learn(self, harms: Sequence[Harm]) -> None:
        """Remembers what cannot be pinned by itself, or at all."""
        for harm in harms:
            around = innermost(harm.around, self.units)
            if around is None or around.path == harm.path:
                self.refused[harm.path] = harm.reason
            else:
                self._lifts[harm.path] = around.path

    def _results(self, run: Run, batches: Sequence[Batch]) -> list[Results]:
        return [run.at_fitting_scale(batch, self.loss_scale) for batch in batches]

    def _error(self, results: Sequence[Results]) -> float:
        error = getattr(errors_between(self.wide, results), self.metric)
        return math.inf if error is None else float(error)

    def _culprits(self, results: Sequence[Results], run: Run) -> tuple[str, ...]:
        return find_culprits(self.wide, results, run.step.trace, self.units)

    def _held_out_errors(self, results: Sequence[Results]) -> Errors | None:
        return errors_between(self.wide_held_out, results) if results else None


def _check_float32(results: Sequence[Results]) -> None:
    if not all(one.is_finite for one in results):
        raise InputsError(
            "The model makes NaN or Inf in float32 already, so that nothing can be compared. "
            "Expected data on which it is finite. `tf_amp_kit.find_nonfinite(model, data)` tells "
            "where it begins."
        )


def _inverse_norm(results: Sequence[Results], key: str) -> float:
    return _inverse(norm(one.outputs[key] for one in results))


def _inverse(length: float) -> float:
    return 1 / length if length else 0.0


def _nudged(batch: Batch) -> Batch:
    """Moves each float input up or down by what float32 rounds."""

    def nudge(value: Any) -> Any:
        if not isinstance(value, tf.Tensor) or value.dtype != tf.float32:
            return value
        signs = tf.cast(tf.range(tf.size(value)) % 2 * 2 - 1, value.dtype)
        return value * (1 + 2.0**-23 * tf.reshape(signs, tf.shape(value)))

    return batch._replace(x=tf.nest.map_structure(nudge, batch.x))
