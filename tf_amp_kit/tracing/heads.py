"""What stands before the outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Operation

__all__ = ["ancestors", "saturating_activations"]

# Between an activation and the output they cannot revive a gradient of zero.
_CARRYING_TYPES: Final = frozenset(
    {
        "AddN",
        "AddV2",
        "Cast",
        "ConcatV2",
        "GatherV2",
        "Mean",
        "Mul",
        "Pack",
        "RealDiv",
        "Split",
        "StridedSlice",
        "Sub",
        "Transpose",
        "Unpack",
    }
)
_SATURATING_TYPES: Final = frozenset({"Sigmoid", "Softmax"})


def saturating_activations(trace: ModelTrace) -> Iterator[Operation]:
    """Yields the sigmoids and softmaxes whose gradient no later layer can revive."""
    pending = list(trace.outputs.values())
    seen: set[int] = set()
    while pending:
        key = pending.pop()
        op = trace.producers.get(key)
        if key in seen or op is None:
            continue
        seen.add(key)
        if op.type in _SATURATING_TYPES:
            yield op
        elif op.bodies:
            pending.extend(op.inner_values(op.outputs.index(key)))
        elif op.is_passing or op.type in _CARRYING_TYPES:
            pending.extend(op.inputs)


def ancestors(
    trace: ModelTrace,
    tensors: Iterable[int],
    *,
    through: Callable[[Operation], bool] = lambda op: True,
) -> list[Operation]:
    """Returns the operations that tensors depend on, in order.

    Args:
        trace: The trace.
        tensors: Tensor numbers.
        through: Tells whether to go on to what an operation depends on.

    Returns:
        Operations, those inside of loops and branches included.
    """
    pending, seen = list(tensors), set[int]()
    found: dict[int, Operation] = {}
    while pending:
        key = pending.pop()
        op = trace.producers.get(key)
        if key in seen or op is None:
            continue
        seen.add(key)
        found[op.index] = op
        if through(op):
            pending.extend(op.inputs)
            pending.extend(inner for body in op.bodies for inner in body)
    return [found[index] for index in sorted(found)]
