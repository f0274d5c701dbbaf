"""What TensorFlow's graph optimizer changes about when buffers are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Operation

__all__ = ["pushed_factors"]


def pushed_factors(
    operations: Sequence[Operation], trace: ModelTrace
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Finds products with a constant that are computed in another order.

    `c * (x * y)` becomes `(c * x) * y` (constant push down). In the gradient of attention
    x is the softmax, c the scale of the scores: `c * x` is there from the forward pass on,
    as large as the softmax itself.

    Args:
        operations: The operations of one graph, in order.
        trace: What they are from.

    Yields:
        The index of an operation and the tensors that it reads instead.
    """
    made_by = {key: op for op in operations for key in op.outputs}
    position = {op.index: n for n, op in enumerate(operations)}
    num_readers = Counter(key for op in operations for key in op.inputs)
    for op in operations:
        if op.type != "Mul":
            continue
        for constant, other in (op.inputs, op.inputs[::-1]):
            inner = made_by.get(other)
            is_chain = inner is not None and inner.type == "Mul" and num_readers[other] == 1
            if inner is None or not is_chain or not _is_constant(constant, made_by):
                continue
            if any(one not in made_by or _is_constant(one, made_by) for one in inner.inputs):
                continue
            # Inputs of commutative operations are sorted by name, which puts the forward
            # pass before the gradients.
            first, last = sorted(inner.inputs, key=lambda one: position[made_by[one].index])
            if trace.tensors[first].shape == trace.tensors[other].shape:
                yield inner.index, (first, constant)
                yield op.index, (other, last)
                break


def _is_constant(key: int, made_by: dict[int, Operation]) -> bool:
    op = made_by.get(key)
    while op is not None and op.is_passing and len(op.inputs) == 1:
        op = made_by.get(op.inputs[0])
    return op is not None and op.type == "Const"
