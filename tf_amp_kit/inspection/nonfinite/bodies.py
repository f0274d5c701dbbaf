"""Running the bodies of loops, branches and function calls by themselves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from tf_amp_kit import _keras
from tf_amp_kit.inspection.nonfinite.levels import BodyRun, BodyRunner
from tf_amp_kit.tracing.bodies import LOOP_TYPES, NUM_OWN_INPUTS, body_names
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["Bodies", "inputs_of_body"]

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
            op: An operation that has bodies.
            values: The values of its inputs.

        Returns:
            The runs in order; none where the body cannot be looked into.
        """
        runners = [self._runner(op, name) for name in body_names(op.raw.operation)]
        if op.type in LOOP_TYPES:
            return _iterations(runners[0], runners[1], values)
        runner = runners[_chosen(op.type, values, len(runners))]
        return [] if runner is None else [runner.run(values[NUM_OWN_INPUTS[op.type] :])]

    def _runner(self, op: Operation, name: str) -> BodyRunner | None:
        if name not in self._runners:
            body = _keras.function_graph(op.raw.operation.graph, name)
            self._runners[name] = None if body is None else BodyRunner(self._step, body)
        return self._runners[name]


def inputs_of_body(op: Operation) -> Sequence[int]:
    """Returns the numbers of those inputs of a call that its body gets, in order."""
    return op.inputs[NUM_OWN_INPUTS[op.type] :]


def _iterations(
    condition: BodyRunner | None, body: BodyRunner | None, state: Sequence[Any]
) -> list[BodyRun]:
    runs: list[BodyRun] = []
    if condition is None or body is None:
        return runs
    for _ in itertools.repeat(None, _MAX_ITERATIONS):
        if not bool(condition.run(state).outputs[0]):
            break
        runs.append(body.run(state))
        state = runs[-1].outputs
    return runs


def _chosen(kind: str, values: Sequence[Any], num_branches: int) -> int:
    """Returns which body an operation takes."""
    if not NUM_OWN_INPUTS[kind]:
        return 0
    if kind.endswith("If"):
        return 0 if bool(values[0]) else 1
    index = int(values[0])
    # TensorFlow takes the last branch for every index that has none.
    return index if 0 <= index < num_branches else num_branches - 1
