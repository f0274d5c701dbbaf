"""From the trace of a train step to steps that make and read buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tf_amp_kit.comparison.memory.flat import branch_of, flattened
from tf_amp_kit.comparison.memory.kernels import AT_HAND_TYPES, FORWARDING_TYPES
from tf_amp_kit.comparison.memory.loops import Loops
from tf_amp_kit.comparison.memory.rewrites import Rewrites
from tf_amp_kit.comparison.memory.simulation import Step
from tf_amp_kit.comparison.memory.state import num_bytes
from tf_amp_kit.tracing.bodies import WRITING_TYPES
from tf_amp_kit.tracing.records import Operation, Tensor
from tf_amp_kit.tracing.step_trace import GRADIENTS_PATH, UPDATE_PATH, StepTrace

__all__ = ["StepReader", "tensor_bytes"]

# What an update takes that cannot be traced: most optimizers compute it from a gradient
# and its slots in two buffers of the weight's size, as Adam's m * alpha and sqrt(v).
_UPDATE_BUFFERS: Final = 2

_PHASES: Final = {GRADIENTS_PATH: "backward", UPDATE_PATH: "update"}

_NO_BYTES: Final = frozenset({"resource", "string", "variant"})

# Keys for what is no tensor of the trace: the index of the largest value in each window.
_FIRST_POOLING_KEY: Final = 1_000_000_000


def tensor_bytes(tensor: Tensor) -> int | None:
    """Returns the size of a tensor, None for an unknown shape."""
    if tensor.dtype in _NO_BYTES:
        return 0
    if tensor.shape is None or any(size is None for size in tensor.shape):
        return None
    return num_bytes([size or 0 for size in tensor.shape], tensor.dtype)


class StepReader:
    """Turns a traced train step, or the body of a loop in it, into steps of the simulation.

    Args:
        step: The trace.
        operations: The operations of a body; None for those of the train step itself.
        loops: Knows the loops; None to look at them anew.
        aliases: Keys of variables, by the keys of others that stand for them.
        has_update: Whether the update of the weights is a part of it.
    """

    def __init__(
        self,
        step: StepTrace,
        operations: Sequence[Operation] | None = None,
        loops: Loops | None = None,
        aliases: Mapping[int, int] | None = None,
        *,
        has_update: bool = True,
    ) -> None:
        self._step = step
        self._trace = step.trace
        pairs: list[tuple[Operation, Operation | None]]
        if operations is None:
            pairs = [
                (op, condition)
                for op, condition in flattened(self._trace, step.reader.graph)
                if has_update or step.phase(op) != UPDATE_PATH
            ]
        else:
            pairs = [(op, None) for op in operations]
        #: The operations behind the steps, in order.
        self.operations = tuple(op for op, _ in pairs)
        self._inside: dict[int, list[int]] = {}
        for position, (_, condition) in enumerate(pairs):
            if condition is not None:
                self._inside.setdefault(condition.index, []).append(position)
        self._conditions = {op.index: one for op, one in pairs if one is not None}
        self._position = {_name(op.raw.operation): n for n, op in enumerate(self.operations)}
        self._producer = {key: n for n, op in enumerate(self.operations) for key in op.outputs}
        self._rewrites = Rewrites(self.operations, self._trace)
        self._roots = dict(aliases or {})
        self._loops = loops or Loops(step)
        #: How many tensors have a size that is not known before the step runs.
        self.num_unknown = 0

    def steps(self) -> list[Step]:
        """Returns what the operations do."""
        return [self._read(op) for op in self.operations]

    def updates(self, weights: Mapping[str, int], *, wait_for_all: bool) -> Iterator[Step]:
        """Yields a guess at what an optimizer does; `steps` has to be called before.

        Args:
            weights: The keys of the weights by their paths.
            wait_for_all: Whether no weight is updated before all gradients are there.
        """
        found = {path: key for path, key in self._step.gradients.items() if key in self._producer}
        made_at = tuple(sorted({self._producer[key] for key in found.values() if key is not None}))
        for path, key in found.items():
            if key is None:
                continue
            waits = made_at if wait_for_all else (self._producer[key],)
            workspace = _UPDATE_BUFFERS * (tensor_bytes(self._trace.tensors[key]) or 0)
            yield Step(
                "update",
                waits,
                (self._root(key),),
                workspace_bytes=workspace,
                updates=weights.get(path),
            )

    @property
    def num_unknown_loops(self) -> int:
        """How many loops run a number of times that is not known before."""
        return self._loops.num_unknown

    def phase(self, position: int) -> str:
        """Names the part of a train step that a step of the simulation belongs to."""
        if position >= len(self.operations):
            return "update"
        return _PHASES.get(self._step.phase(self.operations[position]), "forward")

    def _read(self, op: Operation) -> Step:
        if self._rewrites.is_gone(op):
            return Step(op.type)
        inputs = self._rewrites.inputs(op)
        waits = self._waits_for(op, inputs)
        if op.type == "ReadVariableOp":
            return Step(op.type, waits, lends={op.outputs[0]: self._root(inputs[0])})
        if op.type in WRITING_TYPES:
            variable, *values = (self._root(key) for key in inputs)
            whole = values[0] if op.type == "AssignVariableOp" else None
            return Step(op.type, waits, tuple(values), updates=variable, hands_over=whole)
        given = self._given_on(op, inputs)
        self._roots |= {made: self._root(key) for made, key in given}
        if op.type in AT_HAND_TYPES or op.index in self._inside:
            return Step(op.type, waits)
        reads = tuple(dict.fromkeys(self._root(key) for key in inputs))
        if given:
            return Step(op.type, waits, reads)
        makes = {key: self._size(key, op) for key in op.outputs}
        workspace = self._loops.peak_inside(op, self._read_body) if op.bodies else 0
        if op.type == "MaxPool":
            makes[_FIRST_POOLING_KEY + op.outputs[0]] = self._num_elements(op.outputs[0])
        elif op.type == "MaxPoolGrad":
            reads = (*reads, _FIRST_POOLING_KEY + self._root(op.inputs[1]))
        may_take_over = reads if op.type in FORWARDING_TYPES else ()
        return Step(op.type, waits, reads, makes, may_take_over, workspace)

    def _read_body(self, operations: Sequence[Operation]) -> list[Step]:
        body = StepReader(self._step, operations, self._loops)
        steps = body.steps()
        self.num_unknown += body.num_unknown
        return steps

    def _waits_for(self, op: Operation, inputs: Sequence[int]) -> tuple[int, ...]:
        before = {self._producer[key] for key in inputs if key in self._producer}
        names = map(_name, op.raw.operation.control_inputs)
        before |= {self._position[name] for name in names if name in self._position}
        condition = self._conditions.get(op.index)
        if condition is not None and condition.inputs[0] in self._producer:
            before.add(self._producer[condition.inputs[0]])
        return tuple(sorted({*before, *self._inside.get(op.index, ())}))

    def _given_on(self, op: Operation, inputs: Sequence[int]) -> list[tuple[int, int]]:
        """Lists the outputs of an operation that are what it was given, and of what."""
        tensors = self._trace.tensors
        if op.index in self._inside:
            branch = branch_of(self._trace, op) or 0
            return list(zip(op.outputs, op.bodies[branch], strict=False))
        is_cast = op.type == "Cast"
        if is_cast and tensors[op.inputs[0]].dtype != tensors[op.outputs[0]].dtype:
            return []
        if op.is_passing or is_cast or op.type == "Placeholder":
            return list(zip(op.outputs, inputs, strict=False))
        return []

    def _root(self, key: int) -> int:
        return self._roots.get(key, key)

    def _size(self, key: int, op: Operation) -> int:
        if self._trace.tensors[key].dtype == "variant":
            return self._loops.list_bytes(op, key)
        size = tensor_bytes(self._trace.tensors[key])
        if size is None:
            self.num_unknown += not self._trace.tensors[key].dtype.startswith("int")
        return size or 0

    def _num_elements(self, key: int) -> int:
        # oneDNN keeps a byte for each: where in its window the largest value was.
        tensor = self._trace.tensors[key]
        return (tensor_bytes(tensor) or 0) // num_bytes((), tensor.dtype)


def _name(operation: Any) -> tuple[int, str]:
    """Names an operation; bodies use the names of the graph around them again."""
    return id(operation.graph), operation.name
