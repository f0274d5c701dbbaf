"""Who is to blame for a wide float: one mistake, one place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.view import View
from tf_amp_kit.tracing.records import LayerCall, Operation

# Files of Keras that promote operands; an explicit cast passes through none.
_PROMOTING_FILES: Final = re.compile(r"keras.src.(ops|backend.tensorflow).(?!core)\w+\.py$")


@dataclass(frozen=True)
class Reversion:
    """A half layer's wide output, and why it is wide.

    Attributes:
        call: The layer call.
        output: The tensor's number.
        own: Roots inside the layer's own code.
        foreign: Roots elsewhere, sublayers included.
    """

    call: LayerCall
    output: int
    own: frozenset[int]
    foreign: frozenset[int]


class Inquiry(View):
    """A view that tells the origins of wide floats from what passes them on."""

    @cached_property
    def reversions(self) -> tuple[Reversion, ...]:
        """Every wide output of a half layer, guilty or not."""
        found = []
        for call in self.half_layer_calls:
            for output in self.flow.wide_outputs(call):
                roots = self.flow.roots[output]
                own = frozenset(root for root in roots if self._runs(call, root))
                found.append(Reversion(call, output, own, roots - own))
        return tuple(found)

    @cached_property
    def layer_roots(self) -> frozenset[int]:
        """Roots that half layers let out: those layers are to blame."""
        return frozenset().union(*(reversion.own for reversion in self.reversions))

    @cached_property
    def widening_roots(self) -> tuple[int, ...]:
        """Casts that widen half tensors between layers, one per mistake."""
        found: list[int] = []
        for op in self.trace.live if is_half(self.precision) else ():
            is_candidate = (
                self.flow.is_upcast(op)
                and op.index in self._escaping
                and self._is_between_layers(op)
            )
            if is_candidate and not self._is_consequence(op, found) and not self._is_meant(op):
                found.append(op.index)
        return tuple(found)

    @cached_property
    def guilty(self) -> frozenset[int]:
        """All roots that a finding on a layer or an operation is about."""
        return self.layer_roots | frozenset(self.widening_roots)

    @cached_property
    def _escaping(self) -> frozenset[int]:
        """Roots whose wide values get to a layer or an output.

        What stays between layers is the business of the code there: Keras's own
        `mean`, for one, computes in float32 and returns half.
        """
        keys = {key for call in self.trace.calls if call.kind != "operation" for key in call.inputs}
        keys.update(self.trace.outputs.values())
        return frozenset().union(*(self.flow.roots.get(key, frozenset()) for key in keys))

    def _runs(self, call: LayerCall, root: int) -> bool:
        host = self.host(self.flow.operation(root))
        return host is not None and host.index == call.index

    def _is_between_layers(self, op: Operation) -> bool:
        host, call = self.host(op), self.trace.call_of(op)
        if host is None or call is None or host.kind != "model":
            return False
        if host.index in self.conflicted:
            return False
        # Without a line it is Keras that fits an input to a nested model.
        return call.kind == "operation" or self.trace.source(op) is not None

    def _is_consequence(self, op: Operation, found: Iterable[int]) -> bool:
        """Tells whether a tensor is only widened to meet one that was before."""
        earlier = {*found, *self.layer_roots}
        return any(
            self.flow.roots.get(key, frozenset()) & earlier
            for user in self.flow.users(op.outputs[0])
            for key in user.outputs
        )

    def _is_meant(self, op: Operation) -> bool:
        """Tells a model's written-out cast of its outputs from a promotion."""
        return op.outputs[0] in self.flow.reaching_outputs and self.is_explicit(op)

    def is_explicit(self, op: Operation) -> bool:
        """Tells a cast that somebody wrote from one that an operation made."""
        call = self.trace.call_of(op)
        if call is not None and call.kind == "operation":
            return call.layer_class == "Cast"
        source = self.trace.source(op)
        frames = list(op.get_frames())
        lines = [i for i, frame in enumerate(frames) if source and frame.file == source.file]
        below = frames[lines[-1] + 1 :] if lines else []
        return not any(_PROMOTING_FILES.search(frame.file) for frame in below)
