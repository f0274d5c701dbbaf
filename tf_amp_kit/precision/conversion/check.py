"""No twin leaves with a layer in a precision that was not asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Final

import keras

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import ConversionError, ConversionWarning
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.conversion.policies import PolicyChange
from tf_amp_kit.precision.conversion.state import LayerPair
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["settle_policies", "warn_of_half_code", "warn_of_half_losses"]

_EXAMPLES: Final = 3
_KNOWN_PACKAGES: Final = ("keras", "tf_amp_kit")


def settle_policies(pairs: list[LayerPair], twin_paths: LayerPaths, change: PolicyChange) -> None:
    """Gives layers their policy where no config tells of it, or refuses the twin.

    A policy that was set on a sublayer, or that a composite gives its sublayers
    in code, is in no file and no config. The twin has run nothing yet: a policy
    set now counts from the first call.

    Args:
        pairs: All layers of both models.
        twin_paths: All layers of the twin.
        change: What policies should have become.

    Raises:
        ConversionError: If a layer has half variables that its code asks for.
    """
    for path, layer, dtype in _wrong_dtypes(pairs, twin_paths, change):
        if is_half(layer.variable_dtype):
            raise ConversionError(
                f"The code of the model makes the layer {path!r} of class "
                f"{type(layer).__name__} with the policy {layer.dtype_policy.name!r}, whatever "
                f"the config says. Expected {change.policy!r}. "
                "Let the layer that makes it pass its own dtype_policy on."
            )
        policy = dtype if dtype == "float32" else change.policy
        _keras.replace_policy(layer, keras.dtype_policies.get(policy))


def warn_of_half_code(twin: keras.Model) -> None:
    """Warns of casts and constants in user code that a float32 model still has in half.

    Args:
        twin: A model with float32 policies alone. One that cannot be traced is
            left alone.
    """
    try:
        (trace,) = trace_modes(twin, modes=[False])
    except USER_CODE_ERRORS:
        return
    found = list(dict.fromkeys(_half_origins(trace)))
    if found:
        _warn(
            f"All layers are float32 now, but the code makes half tensors in {_listed(found)}. "
            "Cast to self.compute_dtype there, and to no dtype by name."
        )


def warn_of_half_losses(twin: keras.Model, twin_paths: LayerPaths) -> None:
    """Warns of losses that layers add in half, which `fit` refuses without a name.

    Args:
        twin: A model in half precision. It is traced only if a layer may add a
            loss: Keras's own do so for a regularizer of activities alone.
        twin_paths: All layers of it.
    """
    if not any(_may_add_losses(layer) for _, layer in twin_paths):
        return
    try:
        (trace,) = trace_modes(twin, modes=[True])
    except USER_CODE_ERRORS:
        return
    found = list(dict.fromkeys(_half_losses(trace)))
    if found:
        _warn(
            f"`fit` will raise TypeError: losses are added in half in {_listed(found)}. "
            "Keep these layers in float32, with `tf_amp_kit.pin_float32`, or cast the loss "
            'where it is added: `self.add_loss(ops.cast(loss, "float32"))`.'
        )


def _listed(found: list[str]) -> str:
    shown = "; ".join(found[:_EXAMPLES])
    more = f" and {len(found) - _EXAMPLES} more" if len(found) > _EXAMPLES else ""
    return f"{len(found)} {'place' if len(found) == 1 else 'places'}: {shown}{more}"


def _warn(message: str) -> None:
    warnings.warn(message, ConversionWarning, stacklevel=stacklevel_of_user())


def _may_add_losses(layer: Any) -> bool:
    is_known = type(layer).__module__.partition(".")[0] in _KNOWN_PACKAGES
    return not is_known or layer.activity_regularizer is not None


def _half_losses(trace: ModelTrace) -> Iterator[str]:
    for loss, call in trace.half_losses:
        place = f"{call.kind} {call.path!r}" if call is not None and call.path else "the model"
        yield f"{place} ({loss.source})" if loss.source else place


def _wrong_dtypes(
    pairs: list[LayerPair], twin_paths: LayerPaths, change: PolicyChange
) -> Iterator[tuple[str, Any, str]]:
    """Yields layers of the twin with another compute dtype than wanted, and the wanted one."""
    if not change.is_to_half:
        for path, layer in twin_paths:
            if is_half(layer.compute_dtype) or is_half(layer.variable_dtype):
                yield path, layer, change.compute_dtype
    elif not change.moves_float32:
        for path, old, new in pairs:
            dtype = change.compute_dtype_of(old.compute_dtype)
            # A graph of layers computes nothing itself.
            if new.compute_dtype != dtype and not _keras.is_functional(old):
                yield path, new, dtype


def _half_origins(trace: ModelTrace) -> Iterator[str]:
    """Yields the places where half tensors begin."""
    for op in trace.live:
        makes = any(is_half(trace.tensors[key].dtype) for key in op.outputs)
        if makes and not _half_inputs(trace, op) and not _follows_another(trace, op):
            yield _where(trace, op)


def _half_inputs(trace: ModelTrace, op: Operation) -> list[int]:
    return [key for key in op.inputs if is_half(trace.tensors[key].dtype)]


def _follows_another(trace: ModelTrace, op: Operation) -> bool:
    """Tells whether a constant is half only because of what it is combined with."""
    readers = trace.consumers.get(op.outputs[0], [])
    return op.type == "Const" and all(
        set(_half_inputs(trace, reader)) - set(op.outputs) for reader in readers
    )


def _where(trace: ModelTrace, op: Operation) -> str:
    call, source = trace.call_of(op), trace.source(op)
    place = f"{call.kind} {call.path!r}" if call is not None and call.path else "the model"
    return f"{place} ({op.type}{f' at {source}: {source.text}' if source else ''})"
