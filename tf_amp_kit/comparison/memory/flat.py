"""The order in which TensorFlow runs the operations of a step, conditions taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Operation

__all__ = ["branch_of", "flattened"]


def flattened(
    trace: ModelTrace, graph: Any, condition: Operation | None = None
) -> Iterator[tuple[Operation, Operation | None]]:
    """Lists what runs of a graph, with the operations of a condition in its place.

    TensorFlow runs the branches of conditions as a part of the graph around them. Of
    those that write variables, what is in the larger branch is listed, and then the
    condition itself: the branch that skips an update takes next to nothing.

    Args:
        trace: The trace.
        graph: The graph; its own operations are listed, in order.
        condition: What the graph is a branch of.

    Yields:
        An operation, and the condition that it waits for.
    """
    for op in trace.live:
        if op.raw.operation.graph is graph:
            branch = branch_of(trace, op)
            if branch is not None:
                last = trace.operations[op.body_spans[branch][-1]]
                yield from flattened(trace, last.raw.operation.graph, op)
            yield op, condition


def branch_of(trace: ModelTrace, op: Operation) -> int | None:
    """Tells which branch of a condition runs in its place.

    None for all that is no condition, or writes no variable.
    """
    if op.type != "If" or not trace.writes(op):
        return None
    sizes = [len(span) for span in op.body_spans]
    return sizes.index(max(sizes))
