"""What stands before the outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tf_amp_kit.formats import is_float
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
_WEIGHT_TYPES: Final = frozenset({"ReadVariableOp", "ResourceGather"})


# What a tensor of the model depends on: nothing that is trained, or these saturating
# operations alone, by index, or something else (None).
_Ground = frozenset[int] | None
_UNTRAINED: Final[frozenset[int]] = frozenset()


def saturating_activations(trace: ModelTrace) -> Iterator[Operation]:
    """Yields the sigmoids and softmaxes whose gradient no later layer can revive.

    An output counts if all that is trained reaches it through them: a gate, whose sigmoid
    is multiplied with what other weights make, is none.
    """
    grounds: dict[int, _Ground] = {}
    found = frozenset[int]()
    for key in trace.outputs.values():
        found |= _ground(trace, key, grounds) or _UNTRAINED
    for index in sorted(found, reverse=True):
        yield trace.operations[index]


def _ground(trace: ModelTrace, output: int, grounds: dict[int, _Ground]) -> _Ground:
    pending = [output]
    while pending:
        key = pending[-1]
        op = trace.producers.get(key)
        # No gradient passes through what is no float: shapes and indices, say.
        op = op if is_float(trace.tensors[key].dtype) else None
        needed = _sources(op, key)
        missing = [one for one in needed if one not in grounds]
        if missing and key not in grounds:
            grounds[key] = None  # for a loop that leads back here
            pending.extend(missing)
            continue
        grounds[pending.pop()] = _combined(op, [grounds[one] for one in needed])
    return grounds[output]


def _sources(op: Operation | None, key: int) -> Sequence[int]:
    if op is None or op.type in _SATURATING_TYPES or op.type in _WEIGHT_TYPES:
        return ()
    return op.inner_values(op.outputs.index(key)) if op.bodies else op.inputs


def _combined(op: Operation | None, parts: Sequence[_Ground]) -> _Ground:
    if op is None:
        return _UNTRAINED
    if op.type in _SATURATING_TYPES:
        return frozenset({op.index})
    known = [part for part in parts if part is not None]
    reached = _UNTRAINED.union(*known)
    if op.bodies:  # one branch is enough
        return reached or (None if len(known) < len(parts) else reached)
    if op.type in _WEIGHT_TYPES or len(known) < len(parts):
        return None
    carries = op.is_passing or op.type in _CARRYING_TYPES
    return reached if carries or not reached else None


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
