"""The first operation whose result is not finite, and reaches what a step leaves behind."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tf_amp_kit import _keras
from tf_amp_kit.inspection.nonfinite.levels import WRITING_TYPES, BodyRun, BodyRunner, Level
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.step_graph import StepTrace

__all__ = ["Found", "Search"]

# A loop that is this long is looked at no further: each iteration is run by itself.
_MAX_ITERATIONS: Final = 100_000

_DATA_TYPES: Final = frozenset({"Placeholder", "ReadVariableOp"})


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
        self._step = step
        self._is_deliberate = is_deliberate
        self._runners: dict[str, BodyRunner | None] = {}

    def origin(self, level: Level, ends: Collection[int]) -> Found | None:
        """Finds the first operation that made something bad that reaches an end.

        What the data or the variables already hold comes first.

        Args:
            level: A run of a graph.
            ends: Numbers of tensors that matter.

        Returns:
            Where it began; None if nothing bad reaches an end, or only infinities
            that the code puts there on purpose.
        """
        sources = _sources(level.operations)
        reached = self._reaching(level, ends, sources)
        path = [op for op in level.operations if any(key in reached for key in op.outputs)]
        deliberate: set[int] = set()
        for op in sorted(path, key=lambda op: (op.type not in _DATA_TYPES, op.index)):
            found = self._judge(op, sources, level, reached, deliberate)
            if found is not None:
                return found
        return None

    def _reaching(
        self, level: Level, ends: Collection[int], sources: Mapping[int, Sequence[int]]
    ) -> set[int]:
        """Follows bad tensors back from the ends; of lists nobody knows what they hold."""
        tensors = self._step.trace.tensors
        reached: set[int] = set()
        pending = list(ends)
        while pending:
            key = pending.pop()
            is_open = key in level.bad or tensors[key].dtype == "variant"
            if key in reached or not is_open:
                continue
            reached.add(key)
            pending.extend(sources.get(key, ()))
        return reached

    def _judge(
        self,
        op: Operation,
        sources: Mapping[int, Sequence[int]],
        level: Level,
        reached: Collection[int],
        deliberate: set[int],
    ) -> Found | None:
        made = [key for key in op.outputs if key in level.bad and key in reached]
        inputs = sources[op.outputs[0]]
        if any(key in level.bad and key not in deliberate for key in inputs):
            return None
        if op.type in _CALLS:
            positions = [i for i, key in enumerate(op.outputs) if key in reached]
            inner = self._inside(op, level, positions)
            if inner is not None:
                return inner
        if not made or self._may_hold_bad(op):
            return None
        if self._carries_on_purpose(op, level, made, deliberate):
            deliberate.update(made)
            return None
        return Found(op, level)

    def _may_hold_bad(self, op: Operation) -> bool:
        """Tells whether an operation takes values out of a list, which others put in."""
        tensors = self._step.trace.tensors
        is_list = any(tensors[key].dtype == "variant" for key in op.inputs)
        return is_list and op.type not in _CALLS

    def _carries_on_purpose(
        self, op: Operation, level: Level, made: Sequence[int], deliberate: Collection[int]
    ) -> bool:
        if any(level.bad[key].num_nan for key in made):
            return False
        if op.type == "Const":
            return self._is_deliberate(op)
        return any(key in deliberate for key in op.inputs)

    def _inside(self, op: Operation, level: Level, positions: Sequence[int]) -> Found | None:
        """Runs the bodies of an operation by themselves, and looks into them."""
        inputs = level.values(op.inputs)
        for iteration, run, body in self._runs(op, inputs):
            ends = [self._step.reader.known_number(body.outputs[i]) for i in positions]
            found = self.origin(run, ends)
            if found is not None:
                around = () if iteration is None else (iteration,)
                return Found(found.operation, found.level, (*around, *found.iterations))
        return None

    def _runs(
        self, op: Operation, inputs: Sequence[Any]
    ) -> Iterator[tuple[int | None, BodyRun, Any]]:
        if op.type in _LOOPS:
            yield from self._iterations(op, inputs)
            return
        name, given = _CALLS[op.type](op, inputs)
        runner, body = self._runner(op, name)
        if runner is not None:
            yield None, runner.run(given), body

    def _iterations(
        self, op: Operation, state: Sequence[Any]
    ) -> Iterator[tuple[int | None, BodyRun, Any]]:
        condition, _ = self._runner(op, op.get_attribute("cond").name)
        runner, body = self._runner(op, op.get_attribute("body").name)
        if condition is None or runner is None:
            return
        for iteration in itertools.islice(itertools.count(), _MAX_ITERATIONS):
            if not bool(condition.run(state).outputs[0]):
                return
            run = runner.run(state)
            yield iteration, run, body
            state = run.outputs

    def _runner(self, op: Operation, name: str) -> tuple[BodyRunner | None, Any]:
        body = _keras.function_graph(op.raw.operation.graph, name)
        if name not in self._runners:
            self._runners[name] = None if body is None else BodyRunner(self._step, body)
        return self._runners[name], body


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


def _branch(op: Operation, inputs: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    name = "then_branch" if bool(inputs[0]) else "else_branch"
    return op.get_attribute(name).name, inputs[1:]


def _case(op: Operation, inputs: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    branches = op.get_attribute("branches")
    index = int(inputs[0])
    last = len(branches) - 1
    return branches[index if 0 <= index <= last else last].name, inputs[1:]


def _function(op: Operation, inputs: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    return op.get_attribute("f").name, inputs


_LOOPS: Final = frozenset({"While", "StatelessWhile"})
_CALLS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(_LOOPS),
    "If": _branch,
    "StatelessIf": _branch,
    "Case": _case,
    "StatelessCase": _case,
    "PartitionedCall": _function,
    "StatefulPartitionedCall": _function,
}
