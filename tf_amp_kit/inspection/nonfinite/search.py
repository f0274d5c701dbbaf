"""The first operation whose result is not finite, and reaches what a step leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tf_amp_kit.inspection.nonfinite.bodies import inputs_of_body
from tf_amp_kit.inspection.nonfinite.levels import BodyRun, Level
from tf_amp_kit.inspection.nonfinite.sources import Sources
from tf_amp_kit.tracing.bodies import CALLING_TYPES
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["DATA_TYPES", "Found", "Search"]

#: Operations that bring in what was there before the step.
DATA_TYPES: Final = frozenset({"Placeholder", "ReadVariableOp"})


@dataclass(frozen=True)
class Found:
    """Where NaN or Inf comes from.

    Attributes:
        operation: The operation whose inputs are finite, and whose result is not.
        level: The graph that it ran in, and that run.
        iterations: The iteration of each loop around it, outermost first, from 0.
        caller: The call of the function that it is in, if it is in one: several
            layers may share a function.
    """

    operation: Operation
    level: Level
    iterations: tuple[int, ...] = ()
    caller: Operation | None = None

    @property
    def result(self) -> int:
        """The number of its first bad output."""
        return next(key for key in self.operation.outputs if key in self.level.bad)


class Search:
    """Looks for the origin of NaN and Inf in one run of a train step.

    Args:
        step: The traced step.
        is_deliberate: Tells of a constant operation whether its infinities are what
            the code says, in any precision: a mask of -inf for example.
    """

    def __init__(self, step: StepTrace, is_deliberate: Callable[[Operation], bool]) -> None:
        self._sources = Sources(step)
        self._is_deliberate = is_deliberate

    def origin(
        self, level: Level, ends: Collection[int], deliberate: set[int] | None = None
    ) -> Found | None:
        """Finds the first operation that made something bad that reaches an end.

        What the data or the variables already hold comes first.

        Args:
            level: A run of a graph.
            ends: Numbers of tensors that matter.
            deliberate: Numbers of tensors with infinities that the code puts there;
                those that are found on the way are added.

        Returns:
            Where it began; None if nothing bad reaches an end, or only infinities
            that the code puts there on purpose.
        """
        reached = self._sources.reaching(level, ends)
        known: set[int] = set() if deliberate is None else deliberate
        path = [op for op in level.operations if any(key in reached for key in op.outputs)]
        for op in sorted(path, key=lambda op: (op.type not in DATA_TYPES, op.index)):
            inputs = {key for one in op.outputs for key in reached.get(one, ())}
            if not any(key in level.bad and key not in known for key in inputs):
                found = self._judge(op, level, reached, known)
                if found is not None:
                    return found
        return None

    def _judge(
        self, op: Operation, level: Level, reached: Collection[int], deliberate: set[int]
    ) -> Found | None:
        """Tells whether an operation is the origin, its inputs being finite or on purpose."""
        made = [key for key in op.outputs if key in level.bad and key in reached]
        is_explained = False
        if op.type in CALLING_TYPES:
            runs = self._sources.runs(op, level)
            positions = [i for i, key in enumerate(op.outputs) if key in reached]
            found = self._inside(op, runs, positions, deliberate)
            if found is not None:
                return found
            is_explained = bool(runs)
        elif self._sources.is_elsewhere(op, level):
            return None
        is_nan = any(level.bad[key].num_nan for key in made)
        on_purpose = is_explained or self._is_on_purpose(op, level, made, deliberate)
        if made and (is_nan or not on_purpose):
            return Found(op, level)
        deliberate.update(made)
        return None

    def _is_on_purpose(
        self, op: Operation, level: Level, made: Sequence[int], deliberate: Collection[int]
    ) -> bool:
        if op.type == "Const":
            return self._is_deliberate(op)
        given = [level.bad[key] for key in op.inputs if key in deliberate]
        for result in (level.bad[key] for key in made):
            # Elementwise, infinities that came in are as many as come out, broadcast.
            copies = [one.num_infinite * result.num_elements // one.num_elements for one in given]
            is_elementwise = any(one.num_elements == result.num_elements for one in given)
            if is_elementwise and result.num_infinite > sum(copies):
                return False
        return bool(given)

    def _inside(
        self,
        op: Operation,
        runs: Sequence[BodyRun],
        positions: Sequence[int],
        deliberate: Collection[int],
    ) -> Found | None:
        """Looks into the runs of a body, the first one first."""
        given = [i for i, key in enumerate(inputs_of_body(op)) if key in deliberate]
        all_ends, _ = self._sources.ends(runs, positions)
        for iteration, (run, ends) in enumerate(zip(runs, all_ends, strict=True)):
            on_purpose = {run.inputs[i] for i in given}
            found = self.origin(run, ends, on_purpose)
            if found is not None:
                around = (iteration,) if op.type.endswith("While") else ()
                caller = op if op.type.endswith("PartitionedCall") else None
                return replace(
                    found,
                    iterations=(*around, *found.iterations),
                    caller=found.caller or caller,
                )
            given = [i for i, key in enumerate(run.output_numbers) if key in on_purpose]
        return None
