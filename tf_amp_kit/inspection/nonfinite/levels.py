"""Graphs while they run: a whole train step, and single runs of bodies inside it.

The body of a loop cannot be looked into from outside. Where a loop turns finite
inputs into NaN, its body is run again by itself, one iteration after the other,
on the values that really went in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.data import Batch
from tf_amp_kit.inspection.nonfinite.health import Health, bad_ones, health_of, is_checked
from tf_amp_kit.tracing.bodies import WRITING_TYPES
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.running import StepRunner, run_plainly, values_restored
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["BodyRun", "BodyRunner", "Level", "StepChecker", "StepLevel"]


class Level(Protocol):
    """One graph, and what was seen of one run of it."""

    @property
    def operations(self) -> Sequence[Operation]:
        """The operations of the graph, without those in bodies."""

    @property
    def is_body(self) -> bool:
        """Whether it is a part of another graph, that gives it its inputs."""

    @property
    def bad(self) -> Mapping[int, Health]:
        """What was not finite, by tensor number."""

    def values(self, numbers: Sequence[int]) -> list[Any]:
        """Computes tensors of the graph again; as eager tensors."""


class StepChecker:
    """Runs a train step and looks for NaN and Inf in it.

    Args:
        step: The traced step.
    """

    def __init__(self, step: StepTrace) -> None:
        self.step = step
        self.runner = StepRunner(step)
        self.operations = operations_of(step, self.runner.graph)
        self._checks: dict[bool, tuple[list[int], Any]] = {}
        # What a step leaves behind: all else is nobody's business if these are finite.
        written = [op.inputs[-1] for op in self.operations if op.type in WRITING_TYPES]
        ends = dict.fromkeys([*step.trace.outputs.values(), *written])
        self.ends = [key for key in ends if is_checked(step.reader.symbolic[key])]
        outputs = step.trace.outputs.items()
        self.outputs = {key for name, key in outputs if not name.startswith("@")}

    def bad_ends(self, batch: Batch, loss_scale: float) -> Mapping[int, Health]:
        """Runs the step, and checks what it leaves behind: a loss, gradients, outputs, state."""
        (counts,) = self._check_ends(batch, loss_scale)
        return bad_ones(self.ends, counts)

    def level(self, batch: Batch, loss_scale: float, *, forward_only: bool) -> StepLevel:
        """Runs the step, and checks every float tensor outside of bodies.

        Args:
            batch: The batch.
            loss_scale: What the loss is multiplied by.
            forward_only: Whether to leave out gradients, which are the larger half.
        """
        if forward_only not in self._checks:
            self._checks[forward_only] = self._check_all(forward_only)
        numbers, check = self._checks[forward_only]
        (counts,) = check(batch, loss_scale)
        return StepLevel(self, batch, loss_scale, bad_ones(numbers, counts))

    @cached_property
    def _check_ends(self) -> Any:
        return self._check(self.ends)

    def _check_all(self, forward_only: bool) -> tuple[list[int], Any]:
        symbolic = self.step.reader.symbolic
        numbers = [
            key
            for op in self.operations
            if not (forward_only and self.step.is_gradient(op))
            for key in op.outputs
            if is_checked(symbolic[key])
        ]
        return numbers, self._check(numbers)

    def _check(self, numbers: Sequence[int]) -> Any:
        symbolic = self.step.reader.symbolic
        with self.runner.graph.as_default():
            counts = health_of([symbolic[key] for key in numbers])
        return self.runner.function([counts])


class StepLevel:
    """A train step outside of all bodies, and one run of it."""

    is_body = False

    def __init__(
        self, checker: StepChecker, batch: Batch, loss_scale: float, bad: Mapping[int, Health]
    ) -> None:
        self.operations = checker.operations
        self.bad = bad
        self._checker = checker
        self._run = batch, loss_scale

    def values(self, numbers: Sequence[int]) -> list[Any]:
        """Computes tensors of the graph again."""
        symbolic = self._checker.step.reader.symbolic
        compute = self._checker.runner.function([symbolic[key] for key in numbers])
        return compute(*self._run)


class BodyRunner:
    """A copy of the body of a loop, a branch or a function call, to be run by itself.

    Args:
        step: The step that the body is part of.
        body: Its `FuncGraph`.
    """

    def __init__(self, step: StepTrace, body: Any) -> None:
        self.operations = operations_of(step, body)
        self._step = step
        self._body = body
        self._functions: dict[tuple[int, ...], Any] = {}
        symbolic = step.reader.symbolic
        inner = [op for op in self.operations if op.type != "Placeholder"]
        self._copied = {key: symbolic[key] for op in inner for key in op.outputs}
        self.inputs = [step.reader.known_number(tensor) for tensor in body.inputs]
        self.output_numbers = [step.reader.known_number(tensor) for tensor in body.outputs]
        keys = [*self.inputs, *self._copied]
        self._checked = [key for key in keys if is_checked(symbolic[key])]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in body.inputs]
        self._graph = _keras.trace_to_graph(self._copy, specs, {}, is_to_run=True)
        self._function = _keras.graph_function(self._graph, [*self._outputs, self._counts])

    def run(self, inputs: Sequence[Any]) -> BodyRun:
        """Runs the body once.

        Args:
            inputs: One eager tensor per input of the body.
        """
        with values_restored(self._step.variables):
            *outputs, counts = run_plainly(self._function, inputs)
        return BodyRun(self, inputs, outputs, bad_ones(self._checked, counts))

    def values(self, inputs: Sequence[Any], numbers: Sequence[int]) -> list[Any]:
        """Computes tensors of the body for given inputs."""
        wanted = tuple(numbers)
        if wanted not in self._functions:
            tensors = [self._tensors[key] for key in wanted]
            self._functions[wanted] = _keras.graph_function(self._graph, tensors)
        with values_restored(self._step.variables):
            return run_plainly(self._functions[wanted], inputs)

    def _copy(self, *inputs: Any) -> list[Any]:
        given = {old.name: new for old, new in zip(self._body.inputs, inputs, strict=True)}
        names = [tensor.name for tensor in (*self._copied.values(), *self._body.outputs)]
        made = tf.graph_util.import_graph_def(
            self._body.as_graph_def(), input_map=given, return_elements=names, name=""
        )
        self._tensors = dict(zip(self._copied, made, strict=False))
        self._tensors.update(zip(self.inputs, inputs, strict=True))
        self._outputs = made[len(self._copied) :]
        self._counts = health_of([self._tensors[key] for key in self._checked])
        return [self._counts]


class BodyRun:
    """One run of a body.

    Attributes:
        operations: The operations of the body.
        inputs: The numbers of its inputs; those of the body, not those outside.
        output_numbers: The numbers of its outputs, likewise.
        outputs: The values of its outputs.
        bad: What was not finite, inputs included.
    """

    is_body = True

    def __init__(
        self,
        runner: BodyRunner,
        values: Sequence[Any],
        outputs: Sequence[Any],
        bad: Mapping[int, Health],
    ) -> None:
        self.operations = runner.operations
        self.inputs = runner.inputs
        self.output_numbers = runner.output_numbers
        self.outputs = outputs
        self.bad = bad
        self._runner = runner
        self._values = values

    def values(self, numbers: Sequence[int]) -> list[Any]:
        """Computes tensors of the body again."""
        return self._runner.values(self._values, numbers)


def operations_of(step: StepTrace, graph: Any) -> list[Operation]:
    """Lists the operations of one graph, without those in bodies below it."""
    return [op for op in step.trace.operations if op.raw.operation.graph is graph]
