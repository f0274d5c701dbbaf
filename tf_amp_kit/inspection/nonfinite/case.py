"""One train step, the same in float32, and what is made of a bad batch."""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from tf_amp_kit.data import Batch, widened_specs
from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.inspection.nonfinite.constants import Constants
from tf_amp_kit.inspection.nonfinite.describing import Describer, Place, place_of
from tf_amp_kit.inspection.nonfinite.health import Health
from tf_amp_kit.inspection.nonfinite.levels import StepChecker, StepLevel
from tf_amp_kit.inspection.nonfinite.notes import Tally, notes_on, spoilt
from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport
from tf_amp_kit.inspection.nonfinite.search import DATA_TYPES, Found, Search
from tf_amp_kit.tracing.paths import LayerPaths, variable_paths
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_trace import StepTrace
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Case", "Diagnosis"]

# Random operations that no seed of Keras drives draw anew in each run.
_MAX_TRIES: Final = 30

# The smallest scale that has one of at least 1 below it.
_SMALLEST_SCALED: Final = 2.0


@dataclass(frozen=True)
class Diagnosis:
    """A bad batch: one run of the step, where it began, and where it got to.

    Attributes:
        level: The run.
        ends: What the step left behind that is bad.
        found: The origin.
    """

    level: StepLevel
    ends: Mapping[int, Health]
    found: Found


class Case:
    """A train step that is looked at for NaN and Inf.

    Args:
        model: A Keras model.
        specs: The specs of inputs, targets and sample weights.
        loss: The loss; None for the compiled one.
    """

    def __init__(self, model: Any, specs: tuple[Any, Any, Any], loss: Any) -> None:
        self._model = model
        self._traced_from = specs, loss
        self.step = self._trace(in_float32=False)
        self._checker = StepChecker(self.step)
        self._paths = variable_paths(LayerPaths(model))
        self._tally = Tally()
        self._describer = Describer(self.step, self._paths, lambda: self._constants)

    @property
    def precision(self) -> str:
        """What most of the layers compute in, half before all else."""
        calls = [call for call in self.step.trace.calls if call.kind == "layer"]
        counts = Counter(call.compute_dtype for call in calls if is_float(call.compute_dtype))
        return max(counts, key=lambda dtype: (is_half(dtype), counts[dtype]), default="float32")

    def for_batch(self, batch: Batch) -> Case:
        """Returns this case, or one that takes the shapes of a batch as well."""
        specs, loss = self._traced_from
        wider = widened_specs(specs, batch)
        return self if wider == specs else Case(self._model, wider, loss)

    def series(self) -> contextlib.AbstractContextManager[None]:
        """Lets seeds go on from one clean batch to the next, and puts them back at the end."""
        return self._checker.runner.series()

    def diagnose(self, batch: Batch, scale: float) -> Diagnosis | None:
        """Runs the step on a batch.

        Returns:
            None if nothing bad is left behind, or only infinities that the code
            puts there on purpose.
        """
        found = self._diagnose(self._checker, batch, scale)
        spoilt_before = sum(not one.is_finite() for one in self.step.variables)
        if found is None and self._checker.runner.num_spoilt > spoilt_before:
            self._tally.num_written += 1
        if found is None:
            self._checker.runner.next_batch()
        return found

    def report(
        self, diagnosis: Diagnosis, batch: Batch, scale: float, num_batches: int, saved_to: Any
    ) -> NonFiniteReport:
        """Describes a bad batch."""
        clean_scale, lasting = self._at_lower_scales(diagnosis.found, batch, scale)
        notes = []
        if lasting is not None:
            notes += self._note_of_scale(diagnosis.found, lasting.found, scale)
            diagnosis, scale = lasting, _lowest(scale)
        found = diagnosis.found
        origin = self._describer.origin(found)
        in_float32, elsewhere = self._in_float32(found, batch, scale)
        reached = self._describer.ends([*diagnosis.ends])
        return NonFiniteReport(
            origin=origin,
            num_batches=num_batches,
            precision=self.precision,
            loss_scale=scale,
            spread=self._describer.spread(found, diagnosis.level.bad),
            reached=tuple(name for name in dict.fromkeys(reached) if name),
            in_float32=in_float32,
            clean_scale=clean_scale,
            notes=(
                *notes,
                *notes_on(
                    self._model,
                    self._tally,
                    spoilt_paths=[one for one in spoilt(self._paths) if one != origin.path],
                    reached=reached,
                    elsewhere=elsewhere,
                ),
            ),
            saved_to=None if saved_to is None else str(saved_to),
        )

    def clean_report(self, num_batches: int, scale: float) -> NonFiniteReport:
        """Describes a search that found nothing."""
        notes = tuple(notes_on(self._model, self._tally, spoilt_paths=spoilt(self._paths)))
        return NonFiniteReport(None, num_batches, self.precision, scale, notes=notes)

    def _trace(self, *, in_float32: bool) -> StepTrace:
        specs, loss = self._traced_from
        return trace_step(self._model, specs, loss=loss, with_metrics=True, in_float32=in_float32)

    @cached_property
    def _twin(self) -> StepTrace | None:
        """The same step in float32; None if it is that already, or cannot be."""
        if not self._is_half:
            return None
        try:
            return self._trace(in_float32=True)
        except USER_CODE_ERRORS:  # a layer that names a half dtype itself
            return None

    @cached_property
    def _is_half(self) -> bool:
        return any(is_half(tensor.dtype) for tensor in self.step.trace.tensors)

    @cached_property
    def _twin_checker(self) -> StepChecker | None:
        return None if self._twin is None else StepChecker(self._twin)

    @cached_property
    def _constants(self) -> Constants | None:
        return None if self._twin is None else Constants(self.step, self._twin)

    def _is_deliberate(self, op: Any) -> bool:
        return self._constants is None or self._constants.is_deliberate(op)

    def _diagnose(self, checker: StepChecker, batch: Batch, scale: float) -> Diagnosis | None:
        """Looks for the origin in a bad batch, in the forward pass alone if that is bad."""
        known = checker.bad_ends(batch, scale)
        if not known:
            return None
        if any(key in known for key in (*checker.outputs, checker.step.loss)):
            found = self._search(checker, batch, scale, known, forward_only=True)
            if found is not None:
                return found
        return self._search(checker, batch, scale, known, forward_only=False)

    def _search(
        self,
        checker: StepChecker,
        batch: Batch,
        scale: float,
        known: Mapping[int, Health],
        *,
        forward_only: bool,
    ) -> Diagnosis | None:
        for _ in range(_MAX_TRIES):
            level = checker.level(batch, scale, forward_only=forward_only)
            ends = {key: level.bad[key] for key in checker.ends if key in level.bad}
            if ends:
                break
        else:
            self._tally.num_lost += not forward_only
            return None
        is_deliberate = self._is_deliberate if checker is self._checker else _always
        found = Search(checker.step, is_deliberate).origin(level, ends)
        if found is None:
            # The code may mean an infinite output, and never an infinite loss.
            serious = [key for key in ends if key not in checker.outputs or ends[key].num_nan]
            if not serious:
                return None
            found = Search(checker.step, _never).origin(level, serious) or _first_bad(level)
        return Diagnosis(level, {**known, **ends}, found)

    def _in_float32(self, found: Found, batch: Batch, scale: float) -> tuple[bool | None, str]:
        """Tells whether float32 goes wrong at the same place, or where else it does."""
        if found.operation.type in DATA_TYPES:
            return None, ""  # it was there before: no precision is asked
        if not self._is_half:
            return True, ""
        checker = self._twin_checker
        if checker is None:
            return None, ""
        other = self._diagnose(checker, batch, scale)
        if other is None:
            return False, ""
        here = place_of(self.step, found)
        there = place_of(checker.step, other.found)
        return (True, "") if here == there else (False, _where(there, other.found))

    def _at_lower_scales(
        self, found: Found, batch: Batch, scale: float
    ) -> tuple[float | None, Diagnosis | None]:
        """Tells the largest lower scale at which a batch is clean.

        Returns:
            That scale, or what is wrong even at the lowest one.
        """
        is_scaled = self.step.is_gradient(found.operation) or found.result == self.step.loss
        if not is_scaled or scale < _SMALLEST_SCALED:
            return None, None
        lasting = self.diagnose(batch, _lowest(scale))
        if lasting is not None:
            return None, lasting
        halvings = range(1, _num_halvings(scale) + 1)
        # The first number of halvings at which the batch is clean, as all later ones are.
        first = bisect_left(halvings, True, key=lambda n: not self._is_bad(batch, scale / 2**n))
        return scale / 2 ** halvings[first], None

    def _is_bad(self, batch: Batch, scale: float) -> bool:
        return bool(self._checker.bad_ends(batch, scale))

    def _note_of_scale(self, found: Found, lasting: Found, scale: float) -> list[str]:
        here = place_of(self.step, found)
        if here == place_of(self.step, lasting):
            return [f"The same happens at loss scale {scale:g}: no lower one helps."]
        where = _where(here, found)
        return [f"At loss scale {scale:g} gradients overflow besides, first in {where}: harmless."]


def _num_halvings(scale: float) -> int:
    """How often a scale can be halved and stay at or above 1."""
    return math.frexp(scale)[1] - 1


def _lowest(scale: float) -> float:
    return math.ldexp(scale, -_num_halvings(scale))


def _always(op: Any) -> bool:
    return True


def _never(op: Any) -> bool:
    return False


def _first_bad(level: StepLevel) -> Found:
    return next(
        Found(op, level) for op in level.operations if any(key in level.bad for key in op.outputs)
    )


def _where(place: Place, found: Found) -> str:
    path, layer_class, source = place
    owner = f"{path or '(model)'} ({layer_class})" if layer_class else path
    return f"{owner}, {found.operation.type}" + (f", {source}" if source else "")
