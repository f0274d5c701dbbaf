"""Setting pins: turn layers to float32, look what that does, and keep it in files."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras

from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import InputsError, ModelError, PinError, PinWarning
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.layer_policies import half_variables
from tf_amp_kit.precision.pinning import files
from tf_amp_kit.precision.pinning.candidates import topmost
from tf_amp_kit.precision.pinning.effects import Harm, find_harm
from tf_amp_kit.precision.pinning.switch import Switch
from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import LayerPaths, is_below

__all__ = ["Outcome", "Pin", "set_pins", "trace_model"]


@dataclass(frozen=True)
class Pin:
    """One layer that is kept in float32, sublayers included.

    Attributes:
        path: The layer's path.
        layer_class: The class name.
        reason: Why it was pinned.
        in_files: Whether a saved model keeps it: `"plain Keras"` reads it, the
            file `"needs tf_amp_kit"`, or it is `"not kept"`.

    Example:

    >>> Pin("head", "Dense", "named").to_dict()["in_files"]
    'plain Keras'
    """

    path: str
    layer_class: str
    reason: str
    in_files: str = files.PLAIN

    def to_dict(self) -> dict[str, str]:
        """Returns the fields as a dictionary for JSON."""
        return {
            "path": self.path,
            "layer_class": self.layer_class,
            "reason": self.reason,
            "in_files": self.in_files,
        }


# What a model raises that is not built, or is called with guessed inputs.
_UNKNOWN_INPUTS = (
    ArithmeticError,
    AttributeError,
    InputsError,
    LookupError,
    ModelError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Outcome(NamedTuple):
    """What came of setting pins."""

    pins: tuple[Pin, ...]
    remarks: tuple[str, ...]
    switch: Switch


def set_pins(
    model: Any,
    reasons: dict[str, str],
    *,
    before: Sequence[ModelTrace] | None = None,
    may_leave: bool = False,
    is_safe: bool = False,
    inputs: Any = None,
) -> Outcome:
    """Pins layers, all or none, unless some may be left.

    Args:
        model: A Keras model.
        reasons: Why, by path.
        before: Traces of the model without the pins, if there are any already.
        may_leave: Whether to leave out what harms the code around it.
        is_safe: Whether it is known that nothing does.
        inputs: Example inputs, for a model that does not know its own.

    Returns:
        An `Outcome`.

    Raises:
        PinError: If a layer stores half variables, or code around a pin cannot
            take its float32 result. The model is as it was.
    """
    paths = LayerPaths(model)
    reasons = _lifted(paths, reasons)
    _refuse_half_variables(paths, reasons)
    blind = ""
    if is_safe:
        before = None
    elif before is None:
        before, blind = _traced_if_possible(model, inputs)
    switch = Switch(model, _usual_policy(paths))
    with contextlib.ExitStack() as undoing:
        undoing.callback(switch.undo)
        remarks: dict[str, None] = dict.fromkeys(filter(None, [blind]))
        after = before
        reasons, kept = _pinned(switch, paths, reasons)
        while before is not None and reasons:
            after = trace_model(model, inputs)
            harms = [
                harm
                for old, new in zip(before, after, strict=True)
                for harm in find_harm(old, new, tuple(reasons))
            ]
            if not may_leave:
                _refuse(harms)
                remarks |= dict.fromkeys(f"With {one.path} pinned, {one.reason}." for one in harms)
                break
            if not harms:
                break
            remarks |= dict.fromkeys(f"Left in half: {one.path}, or {one.reason}." for one in harms)
            harmful = {one.path for one in harms}
            reasons = {path: why for path, why in reasons.items() if path not in harmful}
            switch.undo()
            reasons, kept = _pinned(switch, paths, reasons)
        switch.renew()
        undoing.pop_all()
    if after is not None:
        remarks |= dict.fromkeys(_half_losses(after[-1]))
    pins = tuple(
        Pin(path, type(paths[path]).__name__, why, kept[files.owner_of(paths, path)])
        for path, why in reasons.items()
    )
    return Outcome(pins, tuple(remarks), switch)


def trace_model(model: Any, inputs: Any = None) -> tuple[ModelTrace, ...]:
    """Traces a model in training mode, and in the other one if that may differ.

    Args:
        model: A Keras model.
        inputs: Example inputs, for a model that does not know its own.

    Returns:
        One or two traces, of the model built to its last layer; training comes last.
    """
    num_weights = len(model.weights)
    (trace,) = trace_modes(model, inputs=inputs, modes=(True,))
    is_custom = any(call.is_custom for call in trace.calls)
    if len(model.weights) == num_weights and not is_custom:
        return (trace,)
    # What the first trace built is missing in its list of layers.
    return trace_modes(model, inputs=inputs, modes=(False, True) if is_custom else (True,))


def _traced_if_possible(model: Any, inputs: Any) -> tuple[Sequence[ModelTrace] | None, str]:
    """Returns traces, or why there are none."""
    try:
        return trace_model(model, inputs), ""
    except _UNKNOWN_INPUTS as error:
        if inputs is not None:
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        return None, f"Nobody looked whether code around these pins can take them: {reason}"


def _lifted(paths: LayerPaths, reasons: dict[str, str]) -> dict[str, str]:
    """Pins a TimeDistributed for its layer: it runs `call`, past the layer's policy."""
    lifted = {}
    for path, why in reasons.items():
        around = [
            above
            for above, layer in paths
            if isinstance(layer, keras.layers.TimeDistributed) and is_below(path, above)
        ]
        lifted[around[0] if around else path] = why
    return topmost(lifted)


def _refuse_half_variables(paths: LayerPaths, reasons: dict[str, str]) -> None:
    stored_half = [path for path in reasons if half_variables(paths[path])]
    if stored_half:
        dtype = next(iter(half_variables(paths[stored_half[0]]))).dtype
        raise PinError(
            "A layer that stores its variables in half precision has no float32 weights to "
            f"compute with. Expected layers with float32 variables. Received: {_some(stored_half)} "
            f"stored in {dtype}. Convert the model first: "
            f'`tf_amp_kit.convert_model(model, "mixed_{dtype}")`.'
        )


def _refuse(harms: Collection[Harm]) -> None:
    """Raises if code around a pin cannot run any more."""
    for harm in harms:
        if harm.conflict is None:
            continue
        line = f" ({harm.conflict.source})" if harm.conflict.source else ""
        raise PinError(
            f"The code around {harm.path!r} cannot take its float32 result{line}: "
            f"{harm.reason.rstrip('.')}. Pin {harm.around!r} as a whole, or wrap the layer where "
            "it is made: `tf_amp_kit.layers.Float32(layer)` casts its result back. "
            f"Received: a pin of {harm.path!r}."
        )


def _half_losses(trace: ModelTrace) -> Iterator[str]:
    """Warns of losses that no pin brings to float32, and that `fit` refuses."""
    for loss in trace.losses:
        if not is_half(loss.dtype):
            continue
        call = trace.calls[loss.call] if loss.call >= 0 else None
        where = f" ({loss.source})" if loss.source else ""
        message = (
            f"`fit` will raise TypeError: {(call.path if call else '') or 'the model'} adds a loss "
            f"in {loss.dtype}{where}. Cast it there: "
            '`self.add_loss(ops.cast(loss, "float32"))`.'
        )
        warnings.warn(message, PinWarning, stacklevel=stacklevel_of_user())
        yield message


def _pinned(
    switch: Switch, paths: LayerPaths, reasons: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Pins layers, or what holds them whole, and tells where files keep that."""
    switch.pin(reasons)
    kept = switch.settle(reasons)
    whole = {
        owner: f"a file cannot keep {_some(below)} alone"
        for owner, verdict in kept.items()
        if verdict == files.WHOLE
        for below in [[path for path in reasons if is_below(path, owner)]]
    }
    if not whole:
        return reasons, kept
    _refuse_half_variables(paths, whole)
    switch.pin(whole)
    reasons = topmost({**reasons, **whole})
    return reasons, switch.settle(reasons)


def _usual_policy(paths: LayerPaths) -> Any:
    """Returns the half policy that most layers have, else Keras's global one."""
    policies = [layer.dtype_policy for _, layer in paths if is_half(layer.compute_dtype)]
    plain = [one for one in policies if not isinstance(one, keras.dtype_policies.DTypePolicyMap)]
    if not plain:
        return keras.config.dtype_policy()
    ((name, _),) = Counter(one.name for one in plain).most_common(1)
    return next(one for one in plain if one.name == name)


def _some(names: Collection[str]) -> str:
    shown = ", ".join(map(repr, list(names)[:3]))
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
