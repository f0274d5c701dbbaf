"""What a plan is made of: comparisons, effects, and runs with some pins."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.pin_limits import PinLimits
from tf_amp_kit.comparison.planning.probing.sampling import Probing
from tf_amp_kit.comparison.planning.ranking import rank_units
from tf_amp_kit.comparison.planning.record.parts import BatchDifference, Errors
from tf_amp_kit.comparison.planning.running.culprits import find_culprits
from tf_amp_kit.comparison.planning.running.results import (
    Results,
    difference_of_batches,
    errors_between,
    norm,
)
from tf_amp_kit.comparison.planning.running.runs import Run, Runs
from tf_amp_kit.comparison.planning.running.samples import nudged
from tf_amp_kit.comparison.planning.search import Outcome, Search
from tf_amp_kit.comparison.planning.units import Unit, find_units, innermost
from tf_amp_kit.data import Batch
from tf_amp_kit.errors import InputsError, ModelError
from tf_amp_kit.precision.pinning.effects import find_conflicts
from tf_amp_kit.precision.pinning.registry import pinned_paths
from tf_amp_kit.tracing.records import Conflict
from tf_amp_kit.tracing.step_phases import GRADIENTS, LOSS, OUTPUTS
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Comparison", "Planner"]

#: How far a metric makes a step go.
_UNTIL: Final = {"output": OUTPUTS, "loss": LOSS, "gradient": GRADIENTS}

# Of how many batches gradients are kept, each as large as the weights.
_NUM_GRADIENTS: Final = 2

# Each keeps a graph.
_NUM_KEPT: Final = 3


class Comparison(NamedTuple):
    """How far a choice of pins is from float32, on the batches of the search and on others.

    Attributes:
        errors: The errors on the batches of the search.
        culprits: The units where NaN or Inf began there, even if no output shows it.
        held_out: The errors on others; None if there are none.
        held_out_culprits: The units where NaN or Inf began there.
    """

    errors: Errors
    culprits: tuple[str, ...]
    held_out: Errors | None = None
    held_out_culprits: tuple[str, ...] = ()


@dataclass
class Planner:
    """Compares, samples and runs a model on some batches.

    Args:
        runs: The model in half precision.
        half: The half format.
        metric: `"output"`, `"loss"` or `"gradient"`.
        batches: The batches of the search.
        held_out: Other batches, to check on.
        has_loss: Whether there is a loss, so that gradients can be compared.
        loss_scale: What the loss is multiplied by in half precision.

    Raises:
        ModelError: If nothing computes in half precision, if the metric compares nothing,
            or if the loss cannot be computed, though the metric needs it.
        InputsError: If float32 makes NaN or Inf already.
    """

    runs: Runs
    half: str
    metric: str
    batches: Sequence[Batch]
    held_out: Sequence[Batch]
    has_loss: bool
    loss_scale: float
    #: Why there is no loss to compare, though there is one.
    loss_problem: str = ""
    _latest: dict[frozenset[str], Run] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._half_run, self._wide_run = self._traced()
        self.wide = self._thinned(self._wide_run.on(batch) for batch in self.batches)
        self.wide_held_out = self._thinned(self._wide_run.on(batch) for batch in self.held_out)
        self._check()

    def compare_half(self) -> Comparison:
        """Compares all in half precision with float32."""
        return self._all_half

    @cached_property
    def _all_half(self) -> Comparison:
        return self._compared((), self._half_run)

    def compare(self, pinned: Collection[str]) -> Comparison:
        """Compares a choice of pins with float32."""
        known = self._latest.get(frozenset(pinned)) if self._until == _UNTIL[self.metric] else None
        run = known or self.runs.with_pins(pinned, self._until, self._paths)
        return self._compared(pinned, run)

    def between_batches(self) -> BatchDifference | None:
        """Compares two batches in float32."""
        batches = [*self.wide, *self.wide_held_out]
        return difference_of_batches(batches[0], batches[1]) if len(batches) > 1 else None

    def float32_noise(self) -> float:
        """Returns how far outputs move if float inputs move by a float32 rounding."""
        moved = [self._wide_run.on(nudged(batch)) for batch in self.batches[:1]]
        return errors_between(self.wide[:1], moved).output

    def effects(self, num_probes: int, seed: int) -> Effects:
        """Samples what each unit does."""
        probing = Probing(
            self.runs,
            self.units,
            self.half,
            self.metric,
            weights={key: _inverse_norm(self.wide, key) for key in self.wide[0].outputs},
            raising=self.raising,
            inverse_norm=self._inverse_size(),
            loss_scale=self._half_run.fitting_scale,
        )
        return probing.effects(self.batches, num_probes, seed, self.largest)

    def search(self, effects: Effects, target: float, max_validations: int | None) -> Search:
        """Prepares a search for the pins."""
        errors, culprits, *_ = self._all_half
        return Search(
            order=rank_units(effects),
            predict=effects.predict,
            run=self._outcome,
            target=target,
            first=Outcome((), errors.in_metric(self.metric), culprits),
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

    @property
    def refused(self) -> dict[str, str]:
        """Units that cannot be pinned, with the reason."""
        return self._limits.refused

    @property
    def pinned_before(self) -> tuple[str, ...]:
        """The layers that were pinned before the plan."""
        return pinned_paths(self.runs.paths)

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """What raises with everything in half precision."""
        return self._half_run.step.trace.conflicts

    @property
    def raising(self) -> frozenset[str]:
        """The units that raise with everything in half precision."""
        units = (innermost(one.path, self.units) for one in self.conflicts)
        return frozenset(unit.path for unit in units if unit is not None)

    @property
    def _until(self) -> str:
        return GRADIENTS if self.has_loss else OUTPUTS

    def _traced(self) -> tuple[Run, Run]:
        """Traces all in half precision, which tells the units, and all in float32."""
        try:
            half_run, wide_run = self._both()
        except USER_CODE_ERRORS as error:
            if not self.has_loss:
                raise
            self._give_up_loss(error)
            half_run, wide_run = self._both()
        self.units: tuple[Unit, ...] = find_units(half_run.step, self.runs.paths)
        self._paths = {unit.path for unit in self.units}
        self._limits = PinLimits(self.units)
        return half_run, wide_run

    def _both(self) -> tuple[Run, Run]:
        wide_run = self.runs.float32(self._until, None)
        self.runs.hold_still(wide_run)
        return self.runs.with_pins((), self._until, None), wide_run

    def _give_up_loss(self, error: Exception) -> None:
        problem = next(iter(str(error).splitlines()), type(error).__name__)
        if self.metric != "output":
            raise ModelError(
                f"The metric {self.metric!r} needs a loss, and this one cannot be computed in "
                f"{self.half}: {problem} Received: {self.runs.model.name!r}."
            ) from error
        self.has_loss, self.loss_problem = False, problem

    def _check(self) -> None:
        name = self.runs.model.name
        if not self.units:
            raise ModelError(
                f"No layer of {name!r} computes in {self.half}, and none that does can be made of "
                "it: there is nothing to plan. Expected layers with a mixed or float32 policy "
                "that are not pinned."
            )
        first = self.wide[0]
        compared = {"output": first.outputs, "loss": True, "gradient": first.gradients}
        if not compared[self.metric]:
            raise ModelError(
                f"The metric {self.metric!r} has nothing to compare: {name!r} has no "
                f"{'float outputs' if self.metric == 'output' else 'trainable weights'}."
            )
        if not all(one.is_finite for one in (*self.wide, *self.wide_held_out)):
            raise InputsError(
                "The model makes NaN or Inf in float32 already, so that nothing can be compared. "
                "Expected data on which it is finite. `tf_amp_kit.find_nonfinite(model, data)` "
                "tells where it begins."
            )

    def _compared(self, pinned: Collection[str], run: Run) -> Comparison:
        found = self._against(self.wide, self.batches, pinned, run)
        if not self.held_out:
            return Comparison(*found)
        return Comparison(*found, *self._against(self.wide_held_out, self.held_out, pinned, run))

    def _outcome(self, wanted: Sequence[str]) -> Outcome:
        """Runs the model with some pins, or with what they have to be replaced by."""
        while True:
            pins = self._limits.lifted(wanted)
            run = self.runs.with_pins(pins, _UNTIL[self.metric], ())
            harms = list(find_conflicts(self._half_run.step.trace, run.step.trace, pins))
            if not harms:
                self._remember(pins, run)
                errors, culprits = self._against(self.wide, self.batches, pins, run)
                return Outcome(pins, errors.in_metric(self.metric), culprits)
            self._limits.learn(harms)

    def _remember(self, pins: Collection[str], run: Run) -> None:
        """Keeps the latest runs: one of them is the plan's in the end."""
        self._latest[frozenset(pins)] = run
        if len(self._latest) > _NUM_KEPT:
            del self._latest[next(iter(self._latest))]

    def _results(self, run: Run, batches: Sequence[Batch]) -> list[Results]:
        return self._thinned(run.at_fitting_scale(batch, self.loss_scale) for batch in batches)

    def _thinned(self, results: Iterable[Results]) -> list[Results]:
        """Keeps the gradients of a few batches, unless they are what is compared."""
        is_compared = self.metric == "gradient"
        return [
            one if is_compared or index < _NUM_GRADIENTS else replace(one, gradients={})
            for index, one in enumerate(results)
        ]

    def _against(
        self, wide: Sequence[Results], batches: Sequence[Batch], pinned: Collection[str], run: Run
    ) -> tuple[Errors, tuple[str, ...]]:
        """Compares batches with float32, and tells where NaN or Inf begins."""
        results = self._results(run, batches)
        errors = self._errors(wide, results, run)
        if math.isinf(errors.in_metric(self.metric)) and not run.is_watching:
            # Only now it is worth a trace that looks at each unit.
            watching = self.runs.with_pins(pinned, _UNTIL[self.metric], self._paths)
            return self._against(wide, batches, pinned, watching)
        return errors, find_culprits(wide, results, run.step.trace, self.units)

    def _errors(self, wide: Sequence[Results], results: Sequence[Results], run: Run) -> Errors:
        if not run.step.trace.conflicts:
            return errors_between(wide, results)
        # It ran because the trace went on in float32: by itself it raises.
        if not self.has_loss:
            return Errors(math.inf)
        return Errors(math.inf, math.inf, math.inf, math.nan)

    def _inverse_size(self) -> float:
        if self.metric == "loss":
            return _inverse(sum(abs(one.loss or 0.0) for one in self.wide))
        return _inverse(norm(array for one in self.wide for array in one.gradients.values()))


def _inverse_norm(results: Sequence[Results], key: str) -> float:
    return _inverse(norm(one.outputs[key] for one in results))


def _inverse(length: float) -> float:
    return 1 / length if length else 0.0
