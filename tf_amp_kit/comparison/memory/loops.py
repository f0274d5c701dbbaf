"""Loops of a traced train step: how often they run, and what they keep from each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_amp_kit.comparison.memory.simulation import Step, find_peak
from tf_amp_kit.comparison.memory.state import num_bytes
from tf_amp_kit.tracing.bodies import LOOP_TYPES
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["Loops"]


class Loops:
    """Knows the loops of a train step.

    Args:
        step: The trace.
    """

    def __init__(self, step: StepTrace) -> None:
        self._step = step
        self._trace = step.trace
        self._iterations: dict[int, int | None] = {}
        self._by_graph: dict[int, list[Operation]] = {}
        for op in self._trace.live:
            self._by_graph.setdefault(id(op.raw.operation.graph), []).append(op)

    @property
    def num_unknown(self) -> int:
        """How many of the loops that were asked for run unknown numbers of times."""
        return sum(count is None for count in self._iterations.values())

    def iterations(self, loop: Operation) -> int | None:
        """Returns how often a loop runs, None if that is not known before."""
        if loop.index not in self._iterations:
            self._iterations[loop.index] = None  # a loop that asks for itself knows nothing
            limits = [one for one in self._limits(loop) if one is not None]
            self._iterations[loop.index] = min(limits, default=None)
        return self._iterations[loop.index]

    def iterations_of(self, tensor: int) -> int:
        """Returns how often the loop runs in whose body a tensor is; 1 if that is unknown."""
        producer = self._trace.producers.get(tensor)
        if producer is None:
            return 1
        graph = producer.raw.operation.graph
        for loop in self._trace.live:
            if loop.type in LOOP_TYPES and any(one is graph for one in self._graphs(loop)):
                return self.iterations(loop) or 1
        return 1

    def peak_inside(self, op: Operation, read: Callable[[Sequence[Operation]], list[Step]]) -> int:
        """Returns the most that the body of an operation takes while it runs."""
        bodies = [self._by_graph.get(id(graph), []) for graph in self._graphs(op)]
        return max((find_peak(read(ops)).size_bytes for ops in bodies), default=0)

    def list_bytes(self, op: Operation, key: int) -> int:
        """Returns what a list of tensors holds: what loops hand on from each iteration."""
        if op.type == "TensorListFromTensor":
            return self._bytes_of(op.inputs[0])
        if op.type not in LOOP_TYPES:
            return 0
        count = self.iterations(op) or 1
        inner = [made for made in op.inner_values(op.outputs.index(key)) if made != key]
        return count * sum(self._element_bytes(one) for one in inner)

    def _element_bytes(self, key: int) -> int:
        op = self._trace.producers.get(key)
        while op is not None and op.inputs and op.is_passing:
            op = self._trace.producers.get(op.inputs[0])
        if op is None or op.type not in ("TensorListPushBack", "TensorListSetItem"):
            return 0
        element = op.inputs[1 if op.type == "TensorListPushBack" else 2]
        producer = self._trace.producers.get(element)
        while producer is not None and producer.inputs and producer.is_passing:
            element = producer.inputs[0]
            producer = self._trace.producers.get(element)
        # What the loop gets from outside is there anyway, one for all iterations.
        is_given = producer is not None and producer.type == "Placeholder"
        return 0 if is_given else self._bytes_of(element)

    def _bytes_of(self, key: int) -> int:
        tensor = self._trace.tensors[key]
        is_known = tensor.shape is not None and None not in tensor.shape
        if not is_known or tensor.dtype in ("resource", "string", "variant"):
            return 0
        return num_bytes([size or 0 for size in tensor.shape or ()], tensor.dtype)

    def _graphs(self, op: Operation) -> Iterator[Any]:
        for body in op.bodies:
            producers = (self._trace.producers.get(key) for key in body)
            graph = next((one.raw.operation.graph for one in producers if one), None)
            if graph is not None:
                yield graph

    def _limits(self, loop: Operation) -> Iterator[int | None]:
        """Yields what the condition of a loop compares its counters with."""
        condition = next(self._graphs(loop), None)
        for op in self._trace.operations:
            if op.type == "Less" and op.raw.operation.graph is condition:
                yield self._value(op.inputs[1])

    def _value(self, key: int) -> int | None:
        op = self._trace.producers.get(key)
        while op is not None and op.inputs and (op.is_passing or op.type == "Placeholder"):
            key = op.inputs[0]
            op = self._trace.producers.get(key)
        if op is not None and op.type in LOOP_TYPES:
            return self.iterations(op)  # the counter of the loop that this is the gradient of
        value = tf.get_static_value(self._step.reader.symbolic[key])
        return None if value is None or value.ndim else int(value)
