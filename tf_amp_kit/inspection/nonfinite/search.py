"""The first operation whose result is not finite, and reaches what a step leaves behind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tf_amp_kit.inspection.nonfinite.bodies import CALLING_TYPES, Bodies
from tf_amp_kit.inspection.nonfinite.levels import WRITING_TYPES, BodyRun, Level
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
    """

    operation: Operation
    level: Level
    iterations: tuple[int, ...] = ()

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
        self._tensors = step.trace.tensors
        self._bodies = Bodies(step)
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
        sources = _sources(level.operations)
        reached = self._reaching(level, ends, sources)
        known: set[int] = set() if deliberate is None else deliberate
        path = [op for op in level.operations if any(key in reached for key in op.outputs)]
        for op in sorted(path, key=lambda op: (op.type not in DATA_TYPES, op.index)):
            inputs = sources[op.outputs[0]]
            if not any(key in level.bad and key not in known for key in inputs):
                found = self._judge(op, level, reached, known)
                if found is not None:
                    return found
        return None

    def _reaching(
        self, level: Level, ends: Collection[int], sources: Mapping[int, Sequence[int]]
    ) -> set[int]:
        """Follows bad tensors back from the ends; of lists nobody knows what they hold."""
        reached: set[int] = set()
        pending = list(ends)
        while pending:
            key = pending.pop()
            is_open = key in level.bad or self._tensors[key].dtype == "variant"
            if key in reached or not is_open:
                continue
            reached.add(key)
            pending.extend(sources.get(key, ()))
        return reached

    def _judge(
        self, op: Operation, level: Level, reached: Collection[int], deliberate: set[int]
    ) -> Found | None:
        """Tells whether an operation is the origin, its inputs being finite or on purpose."""
        made = [key for key in op.outputs if key in level.bad and key in reached]
        is_explained = False
        if op.type in CALLING_TYPES:
            runs = self._bodies.runs(op, level.values(op.inputs))
            positions = [i for i, key in enumerate(op.outputs) if key in reached]
            found = self._inside(op, runs, positions, deliberate)
            if found is not None:
                return found
            is_explained = bool(runs)
        elif self._comes_from_elsewhere(op, level):
            return None
        is_nan = any(level.bad[key].num_nan for key in made)
        on_purpose = is_explained or self._is_on_purpose(op, level, made, deliberate)
        if made and (is_nan or not on_purpose):
            return Found(op, level)
        deliberate.update(made)
        return None

    def _comes_from_elsewhere(self, op: Operation, level: Level) -> bool:
        """Tells whether an operation hands on what a list holds, or a body was given."""
        if op.type == "Placeholder":
            return level.is_body
        return any(self._tensors[key].dtype == "variant" for key in op.inputs)

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
        given = [i for i, key in enumerate(self._bodies.given(op)) if key in deliberate]
        for iteration, (run, ends) in enumerate(
            zip(runs, self._ends(runs, positions), strict=True)
        ):
            on_purpose = {run.inputs[i] for i in given}
            found = self.origin(run, ends, on_purpose)
            if found is not None:
                around = (iteration, *found.iterations) if op.type.endswith("While") else ()
                return Found(found.operation, found.level, around or found.iterations)
            given = [i for i, key in enumerate(run.output_numbers) if key in on_purpose]
        return None

    def _ends(self, runs: Sequence[BodyRun], positions: Sequence[int]) -> list[list[int]]:
        """Returns what matters of each run: of an iteration, what the next one needs too."""
        ends: list[list[int]] = []
        for run in reversed(runs):
            ends.append([run.output_numbers[i] for i in positions])
            reached = self._reaching(run, ends[-1], _sources(run.operations))
            positions = [i for i, key in enumerate(run.inputs) if key in reached]
        return ends[::-1]


def _sources(operations: Sequence[Operation]) -> dict[int, tuple[int, ...]]:
    """Lists what each tensor is made of; of a variable that is read, what was written to it."""
    written: dict[int, list[int]] = defaultdict(list)
    sources = {}
    for op in operations:
        if op.type in WRITING_TYPES:
            written[op.inputs[0]].append(op.inputs[1])
        inputs = (*op.inputs, *written[op.inputs[0]]) if op.type == "ReadVariableOp" else op.inputs
        sources.update(dict.fromkeys(op.outputs, inputs))
    return sources
