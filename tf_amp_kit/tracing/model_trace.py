"""The whole of what one pass through a model recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tf_amp_kit.formats import is_half
from tf_amp_kit.tracing.bodies import WRITING_TYPES
from tf_amp_kit.tracing.records import (
    AddedLoss,
    Conflict,
    Constant,
    LayerCall,
    LayerFacts,
    Operation,
    Tensor,
)
from tf_amp_kit.tracing.source import Source, frames_below_call, source_of

__all__ = ["ModelTrace"]


@dataclass(frozen=True)
class ModelTrace:
    """One pass through a model, recorded.

    Attributes:
        training: The `training` argument; None if the model takes none.
        is_eager: Whether the model ran on a tiny batch instead of being traced.
        layers: Every layer that can be reached, called or not.
        calls: Layer calls in the order of entering.
        operations: Operations in the order of creation.
        tensors: All tensors; their numbers are positions here.
        inputs: Tensor numbers of the model's inputs by key.
        outputs: Tensor numbers of the model's outputs by key.
        conflicts: Calls that raised because of half precision.
        losses: Losses that layers added.
        constants: Constants that half precision changed for good.
        why_eager: What tracing raised, for a model that ran eagerly.
        dtypes_are_known: False where the dtypes of the inputs are a guess.
    """

    training: bool | None
    is_eager: bool
    layers: tuple[LayerFacts, ...]
    calls: tuple[LayerCall, ...]
    operations: tuple[Operation, ...]
    tensors: tuple[Tensor, ...]
    inputs: dict[str, int]
    outputs: dict[str, int]
    conflicts: tuple[Conflict, ...] = ()
    losses: tuple[AddedLoss, ...] = ()
    constants: tuple[Constant, ...] = ()
    dtypes_are_known: bool = True
    why_eager: str = ""

    @property
    def input_shapes(self) -> dict[str, tuple[int | None, ...] | None]:
        """The static shapes of the model's inputs by key."""
        return {key: self.tensors[number].shape for key, number in self.inputs.items()}

    @cached_property
    def producers(self) -> dict[int, Operation]:
        """The operation that made each tensor."""
        return {key: op for op in self.operations for key in op.outputs}

    @cached_property
    def live(self) -> tuple[Operation, ...]:
        """Operations that an output, a loss or a variable depends on, in order.

        Keras traces some code twice (the step of an RNN) and throws one away.
        """
        if self.is_eager:
            return self.operations
        pending = [*self.outputs.values(), *(loss.tensor for loss in self.losses)]
        writers = [op for op in self.operations if self.writes(op)]
        pending += [key for op in writers for key in op.inputs]
        seen: set[int] = set()
        alive = {op.index for op in writers}
        while pending:
            key = pending.pop()
            op = self.producers.get(key)
            if key in seen or op is None:
                seen.add(key)
                continue
            seen.add(key)
            alive.add(op.index)
            pending.extend(op.inputs)
            pending.extend(inner for body in op.bodies for inner in body)
        return tuple(op for op in self.operations if op.index in alive)

    def writes(self, op: Operation) -> bool:
        """Tells whether an operation writes a variable, itself or in a body."""
        inner = (self.operations[index] for span in op.body_spans for index in span)
        return op.type in WRITING_TYPES or any(one.type in WRITING_TYPES for one in inner)

    @cached_property
    def consumers(self) -> dict[int, list[Operation]]:
        """The live operations that read each tensor."""
        readers: dict[int, list[Operation]] = {}
        for op in self.live:
            for key in op.inputs:
                readers.setdefault(key, []).append(op)
            for body in op.bodies:
                for key in body:
                    readers.setdefault(key, []).append(op)
        return readers

    def own_operations(self, call: LayerCall) -> Iterator[Operation]:
        """Yields the live operations that a call ran itself."""
        yield from self._by_call.get(call.index, ())

    @cached_property
    def _by_call(self) -> dict[int, list[Operation]]:
        grouped: dict[int, list[Operation]] = {}
        for op in self.live:
            grouped.setdefault(op.call, []).append(op)
        return grouped

    def before_casts(self, key: int) -> int:
        """Follows a tensor back through casts, and what only hands it on.

        Returns:
            The number of the tensor that they began with.
        """
        op = self.producers.get(key)
        while op is not None and op.inputs and (op.is_passing or op.type == "Cast"):
            key = op.inputs[0]
            op = self.producers.get(key)
        return key

    @property
    def half_losses(self) -> Iterator[tuple[AddedLoss, LayerCall | None]]:
        """Yields the losses in half precision, with the call that added each, if any."""
        for loss in self.losses:
            if is_half(loss.dtype):
                yield loss, self.calls[loss.call] if loss.call >= 0 else None

    def call_of(self, op: Operation) -> LayerCall | None:
        """Returns the innermost layer call that ran an operation."""
        return self.calls[op.call] if op.call >= 0 else None

    def host(self, op: Operation) -> LayerCall | None:
        """Returns the layer or model call that an operation belongs to."""
        call = self.call_of(op)
        if call is None:
            return None
        # What a train step does outside the model belongs to no layer.
        layers = (outer for outer in self.enclosing(call) if outer.kind != "operation")
        return next(layers, None)

    def enclosing(self, call: LayerCall) -> Iterator[LayerCall]:
        """Yields a call and all calls around it, innermost first."""
        current: LayerCall | None = call
        while current is not None:
            yield current
            current = self.calls[current.parent] if current.parent >= 0 else None

    def source(self, op: Operation, call: LayerCall | None = None) -> Source | None:
        """Finds the line of user code behind an operation.

        Args:
            op: The operation.
            call: The layer call whose line is wanted; by default the innermost.

        Returns:
            The line, or None where only Keras's own code ran.
        """
        call = call or self.call_of(op)
        frames = op.get_frames()
        found = source_of(frames_below_call(frames, call.depth if call else 0))
        return found or (call.written_at if call else None)
