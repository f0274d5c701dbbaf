"""Who is to blame for a wide float: one mistake, one place."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.view import View
from tf_amp_kit.tracing.records import LayerCall, Operation


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
        """Roots that half layers let out by their own code: they are to blame."""
        return frozenset().union(*(reversion.own for reversion in self.reversions))

    @cached_property
    def mistakes(self) -> tuple[tuple[Reversion, frozenset[int]], ...]:
        """Wide outputs of half layers by their own doing, with the roots of that.

        What a layer only widens to meet a wide tensor from elsewhere is left out,
        and what its code says that it widens.
        """
        found = []
        for reversion in self.reversions:
            others = self.layer_roots - reversion.own
            doing = frozenset(
                root
                for root in reversion.own
                if not self._is_consequence(root, others)
                and not self.flow.operation(root).is_meant_wide
            )
            if doing:
                found.append((reversion, doing))
        return tuple(found)

    @cached_property
    def float32_exits(self) -> tuple[Reversion, ...]:
        """Half layers that return what a float32 sublayer or input gave them.

        Only the innermost layer around a sublayer counts, and none where the
        value goes on to a model output: that is a head of its own choice.
        """
        blamed = self.layer_roots | frozenset(self.widening_roots)
        exits = [
            one
            for one in self.reversions
            if not one.own and not one.foreign & blamed and self._is_unmeant(one)
        ]
        return tuple(
            one for one in exits if not any(self._is_inside(other, one) for other in exits)
        )

    @cached_property
    def widening_roots(self) -> tuple[int, ...]:
        """Casts that widen half tensors between layers, one per mistake."""
        found: list[int] = []
        for op in self.trace.live if is_half(self.precision) else ():
            is_candidate = op.index in self._escaping and self.flow.is_upcast(op)
            if not (is_candidate and self._is_between_layers(op)) or self._is_meant(op):
                continue
            if not self._is_consequence(op.index, {*found, *self.layer_roots}):
                found.append(op.index)
        return tuple(found)

    @cached_property
    def guilty(self) -> frozenset[int]:
        """All roots that a finding on a layer or an operation is about."""
        exits = (one.foreign for one in self.float32_exits)
        return self.layer_roots.union(self.widening_roots, *exits)

    @property
    def unmeant_products(self) -> Iterator[tuple[Operation, LayerCall, LayerCall | None]]:
        """Yields wide products that nobody asked for: with the layer or model that
        ran each, and the innermost half layer around it, if any."""
        for op in self.products:
            host, around = self.trace.host(op), self.half_layer_around(op)
            roots = self.flow.roots.get(op.outputs[0])
            if host is None or roots is None or roots & self.guilty:
                continue
            is_own_choice = not host.is_half and op.outputs[0] in self.flow.reaching_outputs
            outer = around or host
            is_own_choice |= self.is_pinned(host.path) or op.is_meant_wide
            if is_own_choice or {host.index, outer.index} & self.conflicted:
                continue
            if around is not None or host.kind == "model":
                yield op, host, around

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
        host = self.trace.host(self.flow.operation(root))
        return host is not None and host.index == call.index

    def _is_between_layers(self, op: Operation) -> bool:
        host, call = self.trace.host(op), self.trace.call_of(op)
        if host is None or call is None or host.kind != "model":
            return False
        if host.index in self.conflicted:
            return False
        # Without a line it is Keras that fits an input to a nested model.
        return call.kind == "operation" or self.trace.source(op) is not None

    def _is_consequence(self, root: int, others: AbstractSet[int]) -> bool:
        """Tells whether a value is only wide to meet one that was wide before.

        What somebody cast up in so many words, or read wide from a weight, is no
        consequence of anything.
        """
        op = self.flow.operation(root)
        if op.type == "ReadVariableOp" or (self.flow.is_upcast(op) and self.is_explicit(op)):
            return False
        return any(
            self.flow.roots.get(key, frozenset()) & others
            for user in self.flow.users(op.outputs[0])
            for key in user.inputs
            if key != op.outputs[0]
        )

    def _is_unmeant(self, reversion: Reversion) -> bool:
        computes = self._computes_wide(reversion.call)
        if not computes and all(map(self._is_of_pin, reversion.foreign)):
            return False
        if reversion.output in self.flow.reaching_outputs and not computes:
            return False
        given = any(key in self.flow.roots for key in reversion.call.inputs)
        return computes or not given

    def _is_of_pin(self, root: int) -> bool:
        host = self.trace.host(self.flow.operation(root))
        return host is not None and self.is_pinned(host.path)

    def _computes_wide(self, call: LayerCall) -> bool:
        return any(
            key in self.flow.roots and not op.is_passing and op.type != "Cast"
            for op in self.trace.own_operations(call)
            for key in op.outputs
        )

    def _is_inside(self, inner: Reversion, outer: Reversion) -> bool:
        around = [call.index for call in self.trace.enclosing(inner.call)][1:]
        return outer.call.index in around and bool(inner.foreign & outer.foreign)

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
        return not any(_keras.kind_of_keras_code(frame.file) == "promoting" for frame in below)
