"""What each tensor of a run was really made of, as far as NaN and Inf go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from tf_amp_kit.inspection.nonfinite.bodies import Bodies, inputs_of_body
from tf_amp_kit.inspection.nonfinite.levels import BodyRun, Level
from tf_amp_kit.tracing.bodies import CALLING_TYPES, WRITING_TYPES
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["Sources"]

# They take each element from one of two tensors.
_SELECTING_TYPES: Final = frozenset({"Select", "SelectV2"})

_Sources = Callable[[int], Sequence[int]]


class Sources:
    """Follows bad tensors back through the runs of a step and of its bodies.

    Args:
        step: The traced step.
    """

    def __init__(self, step: StepTrace) -> None:
        self._tensors = step.trace.tensors
        self._bodies = Bodies(step)
        # With the level, whose id is only its own while it lives.
        self._runs: dict[tuple[int, int], tuple[Level, list[BodyRun]]] = {}
        self._levels: dict[int, tuple[Level, _Sources]] = {}
        self._found: dict[tuple[int, int, int], Sequence[int]] = {}

    def reaching(self, level: Level, ends: Collection[int]) -> dict[int, Sequence[int]]:
        """Lists the bad tensors that get to an end, with what each was made of.

        Of a list nobody knows what it holds: it counts as bad.

        Args:
            level: A run of a graph.
            ends: Numbers of tensors that matter.
        """
        if id(level) not in self._levels:
            self._levels[id(level)] = level, self._of(level)
        sources = self._levels[id(level)][1]
        reached: dict[int, Sequence[int]] = {}
        pending = list(ends)
        while pending:
            key = pending.pop()
            if key in reached or not self._is_open(key, level):
                continue
            reached[key] = sources(key)
            pending.extend(reached[key])
        return reached

    def is_elsewhere(self, op: Operation, level: Level) -> bool:
        """Tells whether an operation hands on what a list holds, or a body was given."""
        if op.type == "Placeholder":
            return level.is_body
        return any(self._tensors[key].dtype == "variant" for key in op.inputs)

    def runs(self, op: Operation, level: Level) -> list[BodyRun]:
        """Returns the runs of what an operation calls, as they were in a run around it."""
        key = (id(level), op.index)
        if key not in self._runs:
            self._runs[key] = level, self._bodies.runs(op, level.values(op.inputs))
        return self._runs[key][1]

    def ends(
        self, runs: Sequence[BodyRun], positions: Sequence[int]
    ) -> tuple[list[list[int]], Sequence[int]]:
        """Tells what matters of each run: of an iteration, what the next one needs too.

        Args:
            runs: The iterations of a loop, or the one run of another body.
            positions: The positions of the outputs that matter at the end.

        Returns:
            Tensor numbers of each run, and the positions of the inputs that matter.
        """
        ends: list[list[int]] = []
        for run in reversed(runs):
            ends.append([run.output_numbers[i] for i in positions])
            reached = self.reaching(run, ends[-1])
            positions = [i for i, key in enumerate(run.inputs) if key in reached]
        return ends[::-1], positions

    def _is_open(self, key: int, level: Level) -> bool:
        return key in level.bad or self._tensors[key].dtype == "variant"

    def _of(self, level: Level) -> _Sources:
        written: dict[int, list[int]] = defaultdict(list)
        inputs: dict[int, Sequence[int]] = {}
        callers: dict[int, tuple[Operation, int]] = {}
        for op in level.operations:
            if op.type in WRITING_TYPES:
                written[op.inputs[0]].append(op.inputs[-1])
            # What is read of a variable is what was written to it.
            is_read = op.type == "ReadVariableOp"
            of_op = (*op.inputs, *written[op.inputs[0]]) if is_read else op.inputs
            inputs.update(dict.fromkeys(op.outputs, of_op))
            if op.type in CALLING_TYPES and any(key in level.bad for key in op.inputs):
                callers.update((key, (op, i)) for i, key in enumerate(op.outputs))
        inputs |= _selected(level)

        def sources(key: int) -> Sequence[int]:
            return self._needed(level, *callers[key]) if key in callers else inputs.get(key, ())

        return sources

    def _needed(self, level: Level, op: Operation, position: int) -> Sequence[int]:
        """Returns the inputs of a call that one of its outputs was made bad by."""
        key = (id(level), op.index, position)
        if key not in self._found:
            runs = self.runs(op, level)
            given = inputs_of_body(op)
            needed = self.ends(runs, [position])[1] if runs else range(len(given))
            self._found[key] = [given[i] for i in needed]
        return self._found[key]


def _selected(level: Level) -> dict[int, Sequence[int]]:
    """Looks which of two bad tensors a selection took its bad elements from."""
    unclear = [
        op
        for op in level.operations
        if op.type in _SELECTING_TYPES and all(key in level.bad for key in op.inputs[1:])
    ]
    if not unclear:
        return {}
    values = [value.numpy() for value in level.values([key for op in unclear for key in op.inputs])]
    chosen: dict[int, Sequence[int]] = {}
    for number, op in enumerate(unclear):
        condition, *parts = values[3 * number : 3 * number + 3]
        is_first = _aligned(condition, parts[0].ndim) if op.type == "Select" else condition
        taken = [
            key
            for key, part, mask in zip(op.inputs[1:], parts, (is_first, ~is_first), strict=True)
            if np.any(~np.isfinite(part.astype(np.float64)) & mask)
        ]
        chosen[op.outputs[0]] = taken
    return chosen


def _aligned(condition: Any, rank: int) -> Any:
    """Gives the condition of the older operation, a vector of rows, further dimensions."""
    return condition.reshape(condition.shape + (1,) * (rank - condition.ndim))
