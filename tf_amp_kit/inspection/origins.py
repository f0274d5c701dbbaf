"""Where wide floats come from, and how far they get.

A wide float (float32, float64) in a half-precision model starts at a root: an
operation with a wide result and no wide operand, such as the cast of a half
tensor, a constant, or a weight that is read as it is stored. Each wide tensor
knows the roots that it depends on; a cast down ends that.
"""

from __future__ import annotations

from functools import cached_property

from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import LayerCall, Operation


class WideFlow:
    """Follows wide floats through the live operations of a trace.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: ModelTrace) -> None:
        self.trace = trace
        self.roots: dict[int, frozenset[int]] = {}
        for op in trace.live:
            self._follow(op)

    def _follow(self, op: Operation) -> None:
        for position, key in enumerate(op.outputs):
            if not self._carries(key):
                continue
            reached = [self.roots[k] for k in self._operands(op, position) if k in self.roots]
            if reached:
                self.roots[key] = frozenset().union(*reached)
            elif self.trace.tensors[key].is_wide:
                self.roots[key] = frozenset({op.index})

    def _carries(self, key: int) -> bool:
        # Loops hand tensors on in lists, which are variants.
        return self.trace.tensors[key].is_wide or self.trace.tensors[key].dtype == "variant"

    def _operands(self, op: Operation, position: int) -> list[int]:
        if not op.bodies:
            return [key for key in op.inputs if self._carries(key)]
        inner = op.inner_values(position)
        if op.type.endswith("While") and position < len(op.inputs):
            inner.append(op.inputs[position])
        return [key for key in inner if self._carries(key)]

    @cached_property
    def reaching_outputs(self) -> frozenset[int]:
        """Wide tensors that get to a model output without being narrowed."""
        pending = [key for key in self.trace.outputs.values() if self.trace.tensors[key].is_wide]
        seen: set[int] = set()
        while pending:
            key = pending.pop()
            if key in seen:
                continue
            seen.add(key)
            op = self.trace.producers.get(key)
            if op is not None:
                pending.extend(self._operands(op, op.outputs.index(key)))
        return frozenset(seen)

    def operation(self, index: int) -> Operation:
        """Returns an operation by its index."""
        return self.trace.operations[index]

    def is_upcast(self, op: Operation) -> bool:
        """Tells whether an operation casts half precision up."""
        return op.type == "Cast" and is_half(self.trace.tensors[op.inputs[0]].dtype)

    def users(self, key: int) -> list[Operation]:
        """Returns the operations that use a tensor, past those that hand it on."""
        found: list[Operation] = []
        for op in self.trace.consumers.get(key, ()):
            if op.is_passing:
                found.extend(self.users(op.outputs[0]))
            else:
                found.append(op)
        return found

    def is_idle_cast(self, op: Operation) -> bool:
        """Tells whether a cast between floats only serves casts back again."""
        if op.type != "Cast":
            return False
        before = self.trace.tensors[op.inputs[0]].dtype
        between = self.trace.tensors[op.outputs[0]].dtype
        users = self.users(op.outputs[0])
        leaves = op.outputs[0] in self.trace.outputs.values()
        return (
            is_float(before)
            and is_float(between)
            and bool(users)
            and not leaves
            and all(
                user.type == "Cast" and self.trace.tensors[user.outputs[0]].dtype == before
                for user in users
            )
        )

    def wide_outputs(self, call: LayerCall) -> tuple[int, ...]:
        """Returns the float outputs of a call that are wider than 16 bits."""
        tensors = self.trace.tensors
        return tuple(key for key in call.outputs if key in self.roots and tensors[key].is_wide)

    def touched_by(self, roots: frozenset[int], *, but: str) -> tuple[str, ...]:
        """Returns the paths of layers that get or give on what starts at roots.

        Args:
            roots: Indices of root operations.
            but: The path to leave out.
        """
        paths = []
        for call in self.trace.calls:
            keys = (*call.inputs, *call.outputs)
            if (
                call.path
                and call.path != but
                and any(self.roots.get(key, frozenset()) & roots for key in keys)
            ):
                paths.append(call.path)
        return tuple(dict.fromkeys(paths))
