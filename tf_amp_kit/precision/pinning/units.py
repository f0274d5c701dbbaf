"""What can be pinned as one: a layer of its own, or a composite of Keras."""

from __future__ import annotations

from functools import cached_property

from tf_amp_kit.formats import is_half
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.records import LayerCall, LayerFacts, Operation

__all__ = ["Units"]


class Units:
    """Tells which layer has to be pinned for an operation to run in float32.

    A layer of Keras that runs other layers, an LSTM its cell say, casts their
    results to its own compute dtype: it is pinned whole. Code of a user's own
    composite stays half when one of its layers is pinned.

    Args:
        trace: The trace.
    """

    def __init__(self, trace: ModelTrace) -> None:
        self.trace = trace
        self._facts: dict[str, tuple[LayerFacts, ...]] = {}

    def of(self, op: Operation) -> LayerCall | None:
        """Returns the call of the layer to pin, or None between layers."""
        return self.around(self.trace.call_of(op))

    def around(self, call: LayerCall | None) -> LayerCall | None:
        """Returns the call of the layer to pin for what runs in a call."""
        around = list(self.trace.enclosing(call)) if call is not None else []
        layers = [one for one in around if one.kind != "operation"]
        if not layers or layers[0].kind == "model":
            return None
        unit = layers[0]
        for outer in layers[1:]:
            if outer.kind == "model" or outer.is_custom:
                break
            unit = outer
        return unit

    def has_weights(self, unit: LayerCall) -> bool:
        """Tells whether weights belong to a unit, and to no other inside of it."""
        return any(one.own_weight_dtypes and self._belongs(one, unit) for one in self._inside(unit))

    def is_composite(self, unit: LayerCall) -> bool:
        """Tells whether a unit is a user's own code around layers of its own."""
        return unit.is_custom and not all(self._belongs(one, unit) for one in self._inside(unit))

    def is_half(self, unit: LayerCall) -> bool:
        """Tells whether anything of a unit computes in half precision."""
        return any(is_half(one.compute_dtype) and not one.is_model for one in self._inside(unit))

    def _inside(self, unit: LayerCall) -> tuple[LayerFacts, ...]:
        """Returns what is known of a unit and of the layers below it."""
        if unit.path not in self._facts:
            self._facts[unit.path] = tuple(
                one for one in self.trace.layers if is_below(one.path, unit.path)
            )
        return self._facts[unit.path]

    def _belongs(self, facts: LayerFacts, unit: LayerCall) -> bool:
        # What is never called is run by the layer around it.
        is_inner = not unit.is_custom or facts.path not in self._called
        return facts.path == unit.path or is_inner

    @cached_property
    def _called(self) -> frozenset[str]:
        return frozenset(call.path for call in self.trace.calls)
