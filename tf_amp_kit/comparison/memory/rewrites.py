"""What TensorFlow's graph optimizer changes about when buffers are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.records import Operation

__all__ = ["Rewrites", "pushed_factors"]

_PRODUCTS: Final = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2"})


class Rewrites:
    """What operations read instead, and which ones are gone.

    Args:
        operations: The operations that run, in order.
        trace: What they are from.
    """

    def __init__(self, operations: Sequence[Operation], trace: ModelTrace) -> None:
        self._inputs = dict(pushed_factors(operations, trace))
        self._made_by = {key: op for op in operations for key in op.outputs}
        readers: dict[int, list[Operation]] = {}
        for op in operations:
            for key in op.inputs:
                readers.setdefault(key, []).append(op)
        self._gone = {
            op.index
            for op in operations
            if op.type == "IdentityN"
            or (_is_swap(op, self._made_by) and self._is_folded(op, readers))
        }

    def inputs(self, op: Operation) -> tuple[int, ...]:
        """Returns the tensors that an operation reads."""
        return tuple(map(self._source, self._inputs.get(op.index, op.inputs)))

    def is_gone(self, op: Operation) -> bool:
        """Tells whether an operation does not run.

        Products read a matrix in either order, so that nobody transposes it for them. And
        an operation that hands several tensors on would wait for all of them: it is taken
        apart. Keras has one around the gradients, before the update.
        """
        return op.index in self._gone

    def _source(self, key: int) -> int:
        op = self._made_by.get(key)
        while op is not None and op.index in self._gone:
            key = op.inputs[op.outputs.index(key)]
            op = self._made_by.get(key)
        return key

    def _is_folded(self, op: Operation, readers: Mapping[int, Sequence[Operation]]) -> bool:
        found = readers.get(op.outputs[0], ())
        return bool(found) and all(one.type in _PRODUCTS for one in found)


def _is_swap(op: Operation, made_by: Mapping[int, Operation]) -> bool:
    """Tells whether an operation transposes matrices: it swaps the last two dimensions."""
    permutation = made_by.get(op.inputs[1]) if op.type == "Transpose" else None
    value = None if permutation is None else permutation.constant()
    if value is None or value.size < 2:
        return False
    *rest, last, first = value.tolist()
    return rest == list(range(value.size - 2)) and (last, first) == (value.size - 1, value.size - 2)


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
