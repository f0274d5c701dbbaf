"""From the trace of a train step to steps that make and read buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tf_amp_kit.comparison.memory.kernels import AT_HAND_TYPES, FORWARDING_TYPES
from tf_amp_kit.comparison.memory.loops import Loops
from tf_amp_kit.comparison.memory.rewrites import pushed_factors
from tf_amp_kit.comparison.memory.simulation import Step
from tf_amp_kit.comparison.memory.state import num_bytes
from tf_amp_kit.tracing.records import Operation, Tensor
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["StepReader", "tensor_bytes"]

# Optimizers compute an update from a gradient and its slots in up to two buffers of the
# weight's size: Adam's m * alpha and sqrt(v) + epsilon.
_UPDATE_BUFFERS: Final = 2

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
        step: The trace, up to the gradients.
        operations: The operations of a body; None for those of the train step itself.
        loops: Knows the loops; None to look at them anew.
    """

    def __init__(
        self,
        step: StepTrace,
        operations: Sequence[Operation] | None = None,
        loops: Loops | None = None,
    ) -> None:
        self._step = step
        self._trace = step.trace
        if operations is None:
            graph = step.reader.graph
            operations = [op for op in step.trace.live if op.raw.operation.graph is graph]
        #: The operations behind the steps, in order; updates come after them.
        self.operations = tuple(operations)
        self._position = {op.raw.name(): n for n, op in enumerate(self.operations)}
        self._producer = {key: n for n, op in enumerate(self.operations) for key in op.outputs}
        self._pushed = dict(pushed_factors(self.operations, self._trace))
        self._roots: dict[int, int] = {}
        self._loops = loops or Loops(step)
        #: How many tensors have a size that is not known before the step runs.
        self.num_unknown = 0

    def steps(self) -> list[Step]:
        """Returns what the operations do."""
        return [self._read(op) for op in self.operations]

    def updates(self, weights: Mapping[str, int], *, wait_for_all: bool) -> Iterator[Step]:
        """Yields what the optimizer does with each gradient; `steps` has to be called before.

        Args:
            weights: The keys that steps read weights by, by the weights' paths.
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
        is_backward = self._step.is_gradient(self.operations[position])
        return "backward" if is_backward else "forward"

    def _read(self, op: Operation) -> Step:
        inputs = self._pushed.get(op.index, op.inputs)
        waits = self._waits_for(op, inputs)
        if op.type == "ReadVariableOp":
            self._roots[op.outputs[0]] = self._root(op.inputs[0])
        if op.type in AT_HAND_TYPES:
            return Step(op.type, waits)
        reads = tuple(dict.fromkeys(self._root(key) for key in inputs))
        if self._is_view(op):
            pairs = zip(op.outputs, op.inputs, strict=False)
            self._roots |= {made: self._root(given) for made, given in pairs}
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
        names = (one.name for one in op.raw.operation.control_inputs)
        before |= {self._position[name] for name in names if name in self._position}
        return tuple(sorted(before))

    def _is_view(self, op: Operation) -> bool:
        if op.is_passing:
            return bool(op.inputs)
        tensors = self._trace.tensors
        return op.type == "Cast" and tensors[op.inputs[0]].dtype == tensors[op.outputs[0]].dtype

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
