"""What pins do to the code around them: seen by tracing again."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import AmpError, PinWarning
from tf_amp_kit.tracing.heads import ancestors
from tf_amp_kit.tracing.inputs import accepts_training
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.products import products
from tf_amp_kit.tracing.records import Conflict, LayerCall, Operation
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = [
    "Harm",
    "cannot_harm",
    "find_conflicts",
    "find_harm",
    "half_losses",
    "trace_model",
    "traced_if_possible",
]


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


def trace_model(model: Any, inputs: Any = None) -> tuple[ModelTrace, ...]:
    """Traces a model in training mode, and in the other one if that may differ.

    Args:
        model: A Keras model.
        inputs: Example inputs, for a model that does not know its own.

    Returns:
        One or two traces, of the model built to its last layer; training comes last.
    """
    num_weights = len(model.weights)
    (training,) = trace_modes(model, inputs=inputs, modes=(True,))
    if len(model.weights) != num_weights:
        # What the first trace built is missing in its list of layers.
        (training,) = trace_modes(model, inputs=inputs, modes=(True,))
    if accepts_training(model) and any(call.is_custom for call in training.calls):
        return (*trace_modes(model, inputs=inputs, modes=(False,)), training)
    return (training,)


def traced_if_possible(model: Any, inputs: Any) -> tuple[Sequence[ModelTrace], str]:
    """Returns traces, or why there are none."""
    try:
        return trace_model(model, inputs), ""
    except (AmpError, *USER_CODE_ERRORS) as error:
        if inputs is not None:
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return (), f"Nobody looked whether code around these pins can take them: {reason}"


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


def find_harm(
    before: Sequence[ModelTrace], after: Sequence[ModelTrace], pinned: Collection[str]
) -> list[Harm]:
    """Compares a model before and after some layers were pinned.

    Args:
        before: The traces without the pins.
        after: The traces with them, in the same modes.
        pinned: Their paths.

    Returns:
        Pins whose float32 results meet half tensors in an operation that refuses
        such a pair, or that reach a matrix product of a half layer.
    """
    pairs = zip(before, after, strict=True)
    return [harm for old, new in pairs for harm in _harm_in_mode(old, new, pinned)]


def find_conflicts(
    before: ModelTrace, after: ModelTrace, pinned: Collection[str]
) -> Iterator[Harm]:
    """Finds what raises because some layers were pinned, and did not before.

    Args:
        before: The trace without the pins.
        after: The trace with them, in the same mode.
        pinned: Their paths.

    Yields:
        Pins with the code that their float32 results break.
    """
    old = {(one.path, one.source, one.operation) for one in before.conflicts}
    for one in after.conflicts:
        if (one.path, one.source, one.operation) not in old:
            reason = f"{one.path or 'the model'} raises: {one.message.rstrip('.')}"
            for path in _results_used_by(after, one.path, pinned):
                yield Harm(path, one.path, reason, one)


def _harm_in_mode(before: ModelTrace, after: ModelTrace, pinned: Collection[str]) -> Iterator[Harm]:
    yield from find_conflicts(before, after, pinned)
    allowed = Counter(host.path for _, host in _wide_products(before, pinned))
    for op, host in _wide_products(after, pinned):
        allowed[host.path] -= 1
        if allowed[host.path] < 0:
            reason = f"{host.path or 'the model'} would run {op.type} in float32"
            yield from (Harm(path, host.path, reason) for path in _feeding(after, op, pinned))


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


def _feeding(trace: ModelTrace, op: Operation, pinned: Collection[str]) -> list[str]:
    """Returns the pins whose results reach an operation, through no other layer."""
    own = trace.host(op)
    found: dict[str, None] = {}

    def is_own(producer: Operation) -> bool:
        host = trace.host(producer)
        pins = [one for one in pinned if host is not None and is_below(host.path, one)]
        found.update(dict.fromkeys(pins))
        return not pins and host == own

    ancestors(trace, op.inputs, through=is_own)
    return list(found)


def half_losses(traces: Sequence[ModelTrace], pinned: Collection[str]) -> Iterator[str]:
    """Warns of losses that no pin brings to float32, and that `fit` refuses."""
    for loss, call in traces[-1].half_losses if traces else ():
        path = call.path if call is not None else ""
        if any(is_below(path, pin) for pin in pinned):
            continue
        where = f" ({loss.source})" if loss.source else ""
        message = (
            f"`fit` will raise TypeError: {path or 'the model'} adds a loss in "
            f"{loss.dtype}{where}. Cast it there: "
            '`self.add_loss(ops.cast(loss, "float32"))`.'
        )
        warnings.warn(message, PinWarning, stacklevel=stacklevel_of_user())
        yield message
