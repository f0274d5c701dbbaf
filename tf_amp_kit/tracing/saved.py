"""The tensors that are kept from the forward pass for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Operation

# They tell sizes, which no buffer of the model has to be kept for.
_SIZE_TYPES: Final = frozenset({"Rank", "Shape", "ShapeN", "Size", "BroadcastGradientArgs"})


@dataclass(frozen=True)
class SavedTensor:
    """A tensor of the forward pass that the backward pass reads.

    Attributes:
        tensor: The tensor's number.
        dtype: The dtype's name.
        shape: The static shape, None for unknown dimensions or an unknown rank.
        path: The path of the innermost layer call that made it.
        kind: `"activation"`, `"input"` (of the model, or a target), `"weight"` (a
            variable's value, or a cast copy of it), `"constant"` or `"size"`.
        is_per_iteration: Whether a loop keeps one for each of its iterations.
        is_shape_only: Whether nothing but its shape is read.
    """

    tensor: int
    dtype: str
    shape: tuple[int | None, ...] | None
    path: str
    kind: str
    is_per_iteration: bool = False
    is_shape_only: bool = False


def saved_tensors(
    trace: ModelTrace, is_gradient: Callable[[Operation], bool]
) -> tuple[SavedTensor, ...]:
    """Lists what gradient operations read of forward operations, each buffer once.

    Args:
        trace: The trace of a train step.
        is_gradient: Tells gradient operations from the others.

    Returns:
        The tensors, in the order of making.
    """
    kept: dict[int, bool] = {}
    values_read: set[int] = set()
    for op in trace.live:
        for root, is_per_iteration in _reads(trace, op) if is_gradient(op) else ():
            producer = trace.producers.get(root)
            if producer is not None and not is_gradient(producer):
                kept[root] = is_per_iteration
                if op.type not in _SIZE_TYPES:
                    values_read.add(root)
    return tuple(
        _describe(trace, key, is_per_iteration=kept[key], is_shape_only=key not in values_read)
        for key in sorted(kept)
        if trace.tensors[key].dtype != "resource"
    )


def _reads(trace: ModelTrace, op: Operation) -> Iterator[tuple[int, bool]]:
    """Yields whose memory an operation reads, and whether a loop keeps one per iteration."""
    for root in (_root(trace, key) for key in op.inputs):
        producer = trace.producers.get(root)
        if producer is None or not producer.bodies or trace.tensors[root].dtype != "variant":
            yield root, False
            continue
        # A loop hands its steps' values out in a list, a branch in an optional.
        position = producer.outputs.index(root)
        for key in producer.inner_values(position):
            inner = trace.producers.get(_root(trace, key))
            if inner is not None and inner.type == "TensorListPushBack":
                yield _root(trace, inner.inputs[1], in_loop=True), True
            elif inner is not None and inner.type == "OptionalFromValue":
                yield _root(trace, inner.inputs[0]), False


def _root(trace: ModelTrace, key: int, *, in_loop: bool = False) -> int:
    """Follows a tensor back through what only renames or reshapes it."""
    op = trace.producers.get(key)
    while op is not None and op.inputs:
        # What enters a loop is another tensor in each iteration.
        enters_branch = op.type == "Placeholder" and not in_loop
        if not (op.is_passing or enters_branch):
            break
        key = op.inputs[op.outputs.index(key)] if op.type == "IdentityN" else op.inputs[0]
        op = trace.producers.get(key)
    return key


def _describe(
    trace: ModelTrace, key: int, *, is_per_iteration: bool, is_shape_only: bool
) -> SavedTensor:
    op = trace.producers[key]
    call = trace.call_of(op)
    return SavedTensor(
        tensor=key,
        dtype=trace.tensors[key].dtype,
        shape=trace.tensors[key].shape,
        path=call.path if call is not None else "",
        kind=_kind(trace, op),
        is_per_iteration=is_per_iteration,
        is_shape_only=is_shape_only,
    )


def _kind(trace: ModelTrace, op: Operation) -> str:
    if op.type == "Placeholder":
        return "activation" if op.inputs else "input"
    if op.type == "Const":
        return "constant"
    if _is_size(trace, op):
        return "size"
    source: Operation | None = op
    while source is not None and source.inputs and (source.is_passing or source.type == "Cast"):
        source = trace.producers.get(_root(trace, source.inputs[0]))
    return "weight" if source is not None and source.type == "ReadVariableOp" else "activation"


def _is_size(trace: ModelTrace, op: Operation) -> bool:
    """Tells whether an operation computes with shapes and constants only."""
    if op.type in _SIZE_TYPES or op.type == "Const":
        return True
    if not op.inputs or any(not trace.tensors[key].dtype.startswith("int") for key in op.outputs):
        return False
    producers = [trace.producers.get(key) for key in op.inputs]
    return all(one is not None and _is_size(trace, one) for one in producers)
