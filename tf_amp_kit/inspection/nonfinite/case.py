"""One train step, the same in float32, and what is made of a bad batch."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.data import Batch
from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.inspection.nonfinite.constants import Constants
from tf_amp_kit.inspection.nonfinite.describing import Describer, Place, place_of
from tf_amp_kit.inspection.nonfinite.health import Health
from tf_amp_kit.inspection.nonfinite.levels import StepChecker, StepLevel
from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport
from tf_amp_kit.inspection.nonfinite.search import Found, Search
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import StepTrace, trace_step, variable_paths

__all__ = ["Case", "Diagnosis"]

# Halvings that bring every scale that a float32 can hold below 1.
_MAX_HALVINGS: Final = 128


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
        data: What `trace_step` takes.
        loss: The loss; None for the compiled one.
    """

    def __init__(self, model: Any, data: Any, loss: Any) -> None:
        self._model = model
        self._traced_from = data, loss
        self.step = self._trace(in_float32=False)
        self._checker = StepChecker(self.step)
        self._paths = variable_paths(LayerPaths(model))
        self._describer = Describer(self.step, self._paths, lambda: self._constants)

    @property
    def precision(self) -> str:
        """What most of the layers compute in."""
        calls = [call for call in self.step.trace.calls if call.kind == "layer"]
        counts = Counter(call.compute_dtype for call in calls if call.compute_dtype)
        return next((dtype for dtype in counts if is_half(dtype)), "float32")

    def diagnose(self, batch: Batch, scale: float) -> Diagnosis | None:
        """Runs the step on a batch.

        Returns:
            None if nothing bad is left behind, or only infinities that the code
            puts there on purpose.
        """
        ends = self._checker.bad_ends(batch, scale)
        return self._diagnose(self._checker, batch, scale, ends) if ends else None

    def report(
        self, diagnosis: Diagnosis, batch: Batch, scale: float, num_batches: int, saved_to: Any
    ) -> NonFiniteReport:
        """Describes a bad batch."""
        found = diagnosis.found
        origin = self._describer.origin(found)
        in_float32, elsewhere = self._in_float32(found, batch, scale)
        is_backward = origin.direction == "backward"
        reached = self._describer.ends([*diagnosis.ends])
        return NonFiniteReport(
            origin=origin,
            num_batches=num_batches,
            precision=self.precision,
            loss_scale=scale,
            spread=self._describer.spread(found, diagnosis.level.bad),
            reached=tuple(name for name in dict.fromkeys(reached) if name),
            in_float32=in_float32,
            clean_scale=self._clean_scale(batch, scale) if is_backward else None,
            notes=(*self._notes(origin.path, reached, elsewhere),),
            saved_to=None if saved_to is None else str(saved_to),
        )

    def clean_report(self, num_batches: int, scale: float) -> NonFiniteReport:
        """Describes a search that found nothing."""
        notes = tuple(self._notes("", (), ""))
        return NonFiniteReport(None, num_batches, self.precision, scale, notes=notes)

    def _trace(self, *, in_float32: bool) -> StepTrace:
        data, loss = self._traced_from
        return trace_step(self._model, data, loss=loss, with_metrics=True, in_float32=in_float32)

    @cached_property
    def _twin(self) -> StepTrace | None:
        """The same step in float32; None if it is that already."""
        if not any(is_half(tensor.dtype) for tensor in self.step.trace.tensors):
            return None
        return self._trace(in_float32=True)

    @cached_property
    def _twin_checker(self) -> StepChecker | None:
        return None if self._twin is None else StepChecker(self._twin)

    @cached_property
    def _constants(self) -> Constants | None:
        return None if self._twin is None else Constants(self.step, self._twin)

    def _is_deliberate(self, op: Any) -> bool:
        return self._constants is None or self._constants.is_deliberate(op)

    def _diagnose(
        self, checker: StepChecker, batch: Batch, scale: float, ends: Mapping[int, Health]
    ) -> Diagnosis | None:
        level = checker.level(batch, scale)
        is_deliberate = self._is_deliberate if checker is self._checker else _always
        found = Search(checker.step, is_deliberate).origin(level, ends)
        return None if found is None else Diagnosis(level, ends, found)

    def _in_float32(self, found: Found, batch: Batch, scale: float) -> tuple[bool, str]:
        """Tells whether float32 goes wrong at the same place, or where else it does."""
        checker = self._twin_checker
        if checker is None or found.operation.type in ("Placeholder", "ReadVariableOp"):
            return True, ""
        ends = checker.bad_ends(batch, scale)
        other = self._diagnose(checker, batch, scale, ends) if ends else None
        if other is None:
            return False, ""
        here = place_of(self.step, found.operation)
        there = place_of(checker.step, other.found.operation)
        return (True, "") if here == there else (False, _where(there, other.found))

    def _clean_scale(self, batch: Batch, scale: float) -> float | None:
        """Finds the largest lower scale at which a batch is clean, by halving the range."""
        halved = (scale / 2**n for n in range(1, _MAX_HALVINGS))
        lower: list[float] = list(itertools.takewhile(lambda one: one >= 1, halved))
        if not lower or self._checker.bad_ends(batch, lower[-1]):
            return None
        first, last = 0, len(lower) - 1
        while first < last:
            middle = (first + last) // 2
            if self._checker.bad_ends(batch, lower[middle]):
                first = middle + 1
            else:
                last = middle
        return lower[first]

    def _notes(self, origin: str, reached: tuple[str, ...], elsewhere: str) -> list[str]:
        notes = []
        spoilt = [path for path in self._spoilt_variables() if path != origin]
        if spoilt:
            notes.append(f"NaN or Inf is in {len(spoilt)} variables: {some(spoilt)}.")
        if reached and all(name.startswith("@metrics/") for name in reached if name):
            notes.append("Only a metric is affected: the training itself is not.")
        if elsewhere:
            notes.append(f"In float32 this is finite, but there NaN or Inf begins in {elsewhere}.")
        kind = type(self._model)
        if kind.train_step is not keras.Model.train_step:
            notes.append(f"{kind.__name__}.train_step was not called: this is the step of `fit`.")
        return notes

    def _spoilt_variables(self) -> list[str]:
        return [
            path
            for variable, path in self._paths
            if is_float(variable.dtype) and not np.isfinite(tf.cast(variable, tf.float64)).all()
        ]


def _always(op: Any) -> bool:
    return True


def _where(place: Place, found: Found) -> str:
    path, layer_class, source = place
    owner = f"{path or '(model)'} ({layer_class})" if layer_class else path
    return f"{owner}, {found.operation.type}" + (f", {source}" if source else "")
