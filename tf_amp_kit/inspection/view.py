"""One trace with everything that rules ask of it more than once."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from tf_amp_kit.inspection.origins import WideFlow
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.products import num_multiply_adds, products
from tf_amp_kit.tracing.records import LayerCall, Operation


class View:
    """A trace, the precision that was asked for, and what follows from both.

    Args:
        trace: The trace.
        precision: `"float16"`, `"bfloat16"` or `"float32"`.
        pinned: Paths of layers that were pinned in float32.
    """

    def __init__(self, trace: ModelTrace, precision: str, pinned: Collection[str] = ()) -> None:
        self._pinned = pinned
        self.trace = trace
        self.precision = precision

    def is_pinned(self, path: str) -> bool:
        """Tells whether a layer is float32 because it, or one around it, was pinned."""
        return any(is_below(path, pin) for pin in self._pinned)

    @cached_property
    def flow(self) -> WideFlow:
        """Where wide floats come from and go."""
        return WideFlow(self.trace)

    @cached_property
    def conflicted(self) -> frozenset[int]:
        """Calls that were made in float32 only because half precision raised."""
        return frozenset(call.index for call in self.trace.calls if call.is_conflicted)

    @cached_property
    def half_layer_calls(self) -> tuple[LayerCall, ...]:
        """Calls of layers, models aside, that compute in half precision."""
        return tuple(
            call
            for call in self.trace.calls
            if call.kind == "layer" and call.is_half and call.index not in self.conflicted
        )

    @cached_property
    def products(self) -> tuple[Operation, ...]:
        """The live matrix products."""
        return tuple(products(self.trace))

    @cached_property
    def _total_multiply_adds(self) -> int:
        return sum(num_multiply_adds(self.trace, op) for op in self.products)

    def share(self, ops: list[Operation]) -> float:
        """Returns the share of some products in the model's multiply-adds."""
        total = self._total_multiply_adds
        return sum(num_multiply_adds(self.trace, op) for op in ops) / total if total else 0.0

    def half_layer_around(self, op: Operation) -> LayerCall | None:
        """Returns the innermost half layer whose call an operation is part of."""
        call = self.trace.call_of(op)
        for outer in self.trace.enclosing(call) if call else ():
            if outer.kind == "layer" and outer.is_half:
                return outer
        return None
