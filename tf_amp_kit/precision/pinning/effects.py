"""What pins do to the code around them: seen by tracing again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.products import products
from tf_amp_kit.tracing.records import Conflict, LayerCall, Operation

__all__ = ["Harm", "cannot_harm", "find_harm"]


@dataclass(frozen=True)
class Harm:
    """A pin that breaks the code around it, or makes that slower.

    Attributes:
        path: The pinned layer.
        around: The layer or model whose code suffers.
        reason: What happens, in words.
        conflict: The error, if that code raises.
    """

    path: str
    around: str
    reason: str
    conflict: Conflict | None = None


def cannot_harm(trace: ModelTrace, pinned: Collection[str]) -> bool:
    """Tells without a second look whether pins can do nothing to the code around them.

    Args:
        trace: The trace without the pins.
        pinned: Their paths.

    Returns:
        True if only layers of Keras get their results, which cast what they get.
    """
    held = {call.path for call in trace.calls if call.kind == "layer"}
    around = (path.rpartition("/")[0] for path in pinned)
    return not any(call.is_custom or call.kind == "operation" for call in trace.calls) and not any(
        is_below(path, layer) for path in around for layer in held if path
    )


def find_harm(before: ModelTrace, after: ModelTrace, pinned: Collection[str]) -> list[Harm]:
    """Compares a model before and after some layers were pinned.

    Args:
        before: The trace without the pins.
        after: The trace with them.
        pinned: Their paths.

    Returns:
        Pins whose float32 results meet half tensors in an operation that refuses
        such a pair, or that reach a matrix product of a half layer.
    """
    old = {(one.path, one.source, one.operation) for one in before.conflicts}
    found = [
        Harm(path, one.path, f"{one.path or 'the model'} raises: {one.message.rstrip('.')}", one)
        for one in after.conflicts
        if (one.path, one.source, one.operation) not in old
        for path in _results_used_by(after, one.path, pinned)
    ]
    allowed = Counter(host.path for _, host in _wide_products(before, pinned))
    for op, host in _wide_products(after, pinned):
        allowed[host.path] -= 1
        if allowed[host.path] < 0:
            reason = f"{host.path or 'the model'} would run {op.type} in float32"
            found.extend(Harm(path, host.path, reason) for path in _feeding(after, op, pinned))
    return found


def _is_pinned(path: str, pinned: Collection[str]) -> bool:
    return any(is_below(path, one) for one in pinned)


def _results_used_by(trace: ModelTrace, path: str, pinned: Collection[str]) -> Iterator[str]:
    """Yields the pins whose results the code of a layer computes with."""
    for pin in pinned:
        results = [key for call in trace.calls if call.path == pin for key in call.outputs]
        hosts = (trace.host(op) for key in results for op in trace.consumers.get(key, ()))
        if any(host is not None and host.path == path for host in hosts):
            yield pin


def _wide_products(
    trace: ModelTrace, pinned: Collection[str]
) -> Iterator[tuple[Operation, LayerCall]]:
    for op in products(trace):
        host = trace.host(op)
        if host is None or host.is_conflicted or _is_pinned(host.path, pinned):
            continue
        if trace.tensors[op.outputs[0]].is_wide and (host.is_half or host.kind == "model"):
            yield op, host


def _feeding(trace: ModelTrace, op: Operation, pinned: Collection[str]) -> set[str]:
    """Returns the pins whose results reach an operation, through no other layer."""
    own = trace.host(op)
    found: set[str] = set()
    pending, seen = list(op.inputs), set[int]()
    while pending:
        key = pending.pop()
        producer = trace.producers.get(key)
        if key in seen or producer is None:
            continue
        seen.add(key)
        host = trace.host(producer)
        pins = {one for one in pinned if host is not None and is_below(host.path, one)}
        found |= pins
        if not pins and host == own:
            pending.extend(producer.inputs)
    return found
