"""What stands before the outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def onwards(op: Operation, key: int) -> Sequence[int]:
        if op.type in _SATURATING_TYPES:
            return ()
        if op.bodies:
            return op.inner_values(op.outputs.index(key))
        return op.inputs if op.is_passing or op.type in _CARRYING_TYPES else ()

    for op in _walk(trace, trace.outputs.values(), onwards):
        if op.type in _SATURATING_TYPES:
            yield op


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

    def onwards(op: Operation, _: int) -> Sequence[int]:
        inside = [inner for body in op.bodies for inner in body]
        return [*op.inputs, *inside] if through(op) else ()

    found = {op.index: op for op in _walk(trace, tensors, onwards)}
    return [found[index] for index in sorted(found)]


def _walk(
    trace: ModelTrace,
    tensors: Iterable[int],
    onwards: Callable[[Operation, int], Iterable[int]],
) -> Iterator[Operation]:
    """Walks from tensors back to what they come from.

    Args:
        trace: The trace.
        tensors: Tensor numbers.
        onwards: Tells, for an operation and the tensor of it that was come by,
            which tensors to go on to.
    """
    pending, seen = list(tensors), set[int]()
    while pending:
        key = pending.pop()
        op = trace.producers.get(key)
        if key in seen or op is None:
            continue
        seen.add(key)
        pending.extend(onwards(op, key))
        yield op
