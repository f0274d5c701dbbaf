"""Running the bodies of loops, branches and function calls by themselves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tf_amp_kit import _keras
from tf_amp_kit.inspection.nonfinite.levels import BodyRun, BodyRunner
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["CALLING_TYPES", "Bodies", "inputs_of_body"]

# All iterations are kept until the last one is over: a loop that is longer than
# this is looked at no further.
_MAX_ITERATIONS: Final = 10_000


class Bodies:
    """Runs bodies on given values, and keeps what is needed to run them again.

    Args:
        step: The traced step that they are part of.
    """

    def __init__(self, step: StepTrace) -> None:
        self._step = step
        self._runners: dict[str, BodyRunner | None] = {}

    def runs(self, op: Operation, values: Sequence[Any]) -> list[BodyRun]:
        """Runs what an operation calls: each iteration of a loop, or the one branch.

        Args:
            op: An operation of `CALLING_TYPES`.
            values: The values of its inputs.

        Returns:
            The runs in order; none where the body cannot be looked into.
        """
        if op.type in _LOOPS:
            return self._iterations(op, values)
        name, num_skipped = _CALLS[op.type](op, values)
        runner = self._runner(op, name)
        return [] if runner is None else [runner.run(values[num_skipped:])]

    def _iterations(self, op: Operation, state: Sequence[Any]) -> list[BodyRun]:
        condition = self._runner(op, op.get_attribute("cond").name)
        body = self._runner(op, op.get_attribute("body").name)
        runs: list[BodyRun] = []
        if condition is None or body is None:
            return runs
        for _ in itertools.repeat(None, _MAX_ITERATIONS):
            if not bool(condition.run(state).outputs[0]):
                break
            runs.append(body.run(state))
            state = runs[-1].outputs
        return runs

    def _runner(self, op: Operation, name: str) -> BodyRunner | None:
        if name not in self._runners:
            body = _keras.function_graph(op.raw.operation.graph, name)
            self._runners[name] = None if body is None else BodyRunner(self._step, body)
        return self._runners[name]


def inputs_of_body(op: Operation) -> Sequence[int]:
    """Returns the numbers of those inputs of a call that its body gets, in order."""
    return op.inputs[1:] if op.type in _BRANCHES else op.inputs


def _branch(op: Operation, values: Sequence[Any]) -> tuple[str, int]:
    name = "then_branch" if bool(values[0]) else "else_branch"
    return op.get_attribute(name).name, 1


def _case(op: Operation, values: Sequence[Any]) -> tuple[str, int]:
    branches = op.get_attribute("branches")
    index = int(values[0])
    # TensorFlow takes the last branch for every index that has none.
    return branches[index if 0 <= index < len(branches) else -1].name, 1


def _function(op: Operation, values: Sequence[Any]) -> tuple[str, int]:
    return op.get_attribute("f").name, 0


_LOOPS: Final = frozenset({"While", "StatelessWhile"})
_BRANCHES: Final[Mapping[str, Callable[..., tuple[str, int]]]] = {
    "If": _branch,
    "StatelessIf": _branch,
    "Case": _case,
    "StatelessCase": _case,
}
_CALLS: Final = {
    **_BRANCHES,
    "PartitionedCall": _function,
    "StatefulPartitionedCall": _function,
}

#: Operations that run a body.
CALLING_TYPES: Final = _LOOPS | frozenset(_CALLS)
