"""Setting pins: turn layers to float32, look what that does, and keep it in files."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import keras

from tf_amp_kit.errors import AmpError, PinError
from tf_amp_kit.formats import is_half
from tf_amp_kit.precision.layer_policies import half_variables
from tf_amp_kit.precision.pinning import in_config
from tf_amp_kit.precision.pinning.candidates import topmost
from tf_amp_kit.precision.pinning.effects import (
    Harm,
    find_harm,
    half_losses,
    trace_model,
    traced_if_possible,
)
from tf_amp_kit.precision.pinning.in_config import Verdict
from tf_amp_kit.precision.pinning.transaction import Transaction
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import LayerPaths, is_below
from tf_amp_kit.tracing.reading import is_custom
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Outcome", "Pin", "set_pins"]


@dataclass(frozen=True)
class Pin:
    """One layer that is kept in float32, sublayers included.

    Attributes:
        path: The layer's path.
        layer_class: The class name.
        reason: Why it was pinned.
        in_files: Whether a saved model keeps it: `"plain Keras"` reads it, the
            file `"needs tf_amp_kit"`, or it is `"not kept"`. Empty for pins that
            are on no model.

    Example:

    >>> Pin("head", "Dense", "named").to_dict()["in_files"]
    'plain Keras'
    """

    path: str
    layer_class: str
    reason: str
    in_files: str = in_config.PLAIN

    def to_dict(self) -> dict[str, str]:
        """Returns the fields as a dictionary for JSON."""
        return {
            "path": self.path,
            "layer_class": self.layer_class,
            "reason": self.reason,
            "in_files": self.in_files,
        }


class Outcome(NamedTuple):
    """What came of setting pins."""

    pins: tuple[Pin, ...]
    remarks: tuple[str, ...]
    transaction: Transaction


def set_pins(
    model: Any,
    reasons: dict[str, str],
    *,
    is_named: bool = True,
    look: bool = True,
    traces: Sequence[ModelTrace] = (),
    inputs: Any = None,
) -> Outcome:
    """Pins layers: all that somebody named, or none; of others, what does no harm.

    Args:
        model: A Keras model.
        reasons: Why, by path.
        is_named: Whether somebody named the layers. Otherwise pins are left out
            that harm the code around them, and those of earlier such calls
            belong to the outcome.
        look: Whether to look for harm; False where it is known that there is none.
        traces: Traces of the model without the pins, if there are any already.
        inputs: Example inputs, for a model that does not know its own.

    Returns:
        An `Outcome`, with the pins in the order of the model's layers.

    Raises:
        PinError: If a path is missing, if a layer stores half variables, or if
            code around a named layer cannot take its float32 result. The model
            is as it was.
    """
    paths = LayerPaths(model)
    _check_paths(model, paths, reasons)
    reasons = _lifted(paths, reasons)
    _refuse_half_variables(paths, reasons)
    remarks: dict[str, None] = {}
    if look and reasons and not traces:
        traces, blind = traced_if_possible(model, inputs)
        remarks |= dict.fromkeys(filter(None, [blind]))
    transaction = Transaction(model, _usual_policy(paths))
    with contextlib.ExitStack() as undoing:
        undoing.callback(transaction.undo)
        reasons = _pinned(transaction, paths, reasons, is_named=is_named)
        while look and traces and reasons:
            pinned: Sequence[ModelTrace]
            try:
                pinned = trace_model(model, inputs)
                harms = find_harm(traces, pinned, reasons)
            except (AmpError, *USER_CODE_ERRORS) as error:
                transaction.undo()
                pinned, harms = traces, _failing(model, reasons, inputs, error)
            if is_named:
                _refuse(harms)
                remarks |= dict.fromkeys(f"With {one.path} pinned, {one.reason}." for one in harms)
            if is_named or not harms:
                traces = pinned
                break
            remarks |= dict.fromkeys(f"Left in half: {one.path}, or {one.reason}." for one in harms)
            harmful = {one.path for one in harms}
            reasons = {path: why for path, why in reasons.items() if path not in harmful}
            transaction.undo()
            reasons = _pinned(transaction, paths, reasons, is_named=is_named)
        reasons = topmost({**({} if is_named else transaction.take_over()), **reasons})
        kept = transaction.keep(reasons)
        transaction.renew()
        undoing.pop_all()
    remarks |= dict.fromkeys(half_losses(traces, reasons))
    remarks |= dict.fromkeys(_advice(kept))
    pins = tuple(
        Pin(path, type(layer).__name__, reasons[path], kept[in_config.owner_of(paths, path)].where)
        for path, layer in paths
        if path in reasons
    )
    return Outcome(pins, tuple(remarks), transaction)


def _check_paths(model: Any, paths: LayerPaths, reasons: Collection[str]) -> None:
    known = dict(paths)
    missing = [path for path in reasons if path not in known]
    if missing:
        raise PinError(
            f"The pins are of another model. Expected layers {some(missing)}. "
            f"Received: {model.name!r} with {some(list(known)[1:], 8)}."
        )


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
            f"compute with. Expected layers with float32 variables. Received: {some(stored_half)} "
            f"stored in {dtype}. Convert the model first: "
            f'`tf_amp_kit.convert_model(model, "mixed_{dtype}")`.'
        )


def _failing(model: Any, reasons: dict[str, str], inputs: Any, error: Exception) -> list[Harm]:
    """Finds the pins under which the layers' own code raises: each alone, or all together."""
    line = str(error).strip().partition("\n")[0]
    guilty = [path for path in reasons if _fails_alone(model, path, inputs)]
    return [
        Harm(path, path, f"its own code raises in float32: {line}") for path in guilty or reasons
    ]


def _fails_alone(model: Any, path: str, inputs: Any) -> bool:
    trial = Transaction(model, keras.config.dtype_policy())
    trial.pin({path: "tried"}, is_named=False)
    try:
        trace_model(model, inputs)
    except (AmpError, *USER_CODE_ERRORS):
        return True
    finally:
        trial.undo()
    return False


def _refuse(harms: Collection[Harm]) -> None:
    """Raises if code around a pin, or of the layer itself, cannot run any more."""
    for harm in harms:
        if harm.path == harm.around:
            raise PinError(
                f"{harm.path!r} cannot run in float32: {harm.reason.rstrip('.')}. Take dtypes from "
                "the tensors, or from `self.compute_dtype`, in its code. "
                f"Received: a pin of {harm.path!r}."
            )
        if harm.conflict is None:
            continue
        line = f" ({harm.conflict.source})" if harm.conflict.source else ""
        raise PinError(
            f"The code around {harm.path!r} cannot take its float32 result{line}: "
            f"{harm.reason.rstrip('.')}. Pin {harm.around!r} as a whole, or wrap the layer where "
            "it is made: `tf_amp_kit.layers.Float32(layer)` casts its result back. "
            f"Received: a pin of {harm.path!r}."
        )


def _pinned(
    transaction: Transaction, paths: LayerPaths, reasons: dict[str, str], *, is_named: bool
) -> dict[str, str]:
    """Pins layers, and composites of Keras whole that a file cannot keep otherwise."""
    transaction.pin(reasons, is_named=is_named)
    below: dict[str, list[str]] = {}
    for path in reasons:
        owner = in_config.owner_of(paths, path)
        if owner != path and not is_custom(paths[owner]):
            below.setdefault(owner, []).append(path)
    kept = transaction.keep(path for inner in below.values() for path in inner)
    whole = {
        owner: f"a file cannot keep {some(below[owner])} alone"
        for owner, verdict in kept.items()
        if verdict.where == in_config.WHOLE
    }
    _refuse_half_variables(paths, whole)
    transaction.pin(whole, is_named=is_named)
    return topmost({**reasons, **whole})


def _advice(kept: dict[str, Verdict]) -> Iterator[str]:
    needing = [path for path, verdict in kept.items() if verdict.where == in_config.PACKAGE]
    if needing:
        yield (
            f"Files keep the pins in {_shown(needing)} for `tf_amp_kit.load_model(path)` only: "
            "code makes these layers, and takes no policy for them."
        )
    for path, verdict in kept.items():
        if verdict.where == in_config.NOWHERE:
            yield (
                f"Files do not keep the pins in {_shown([path])}: {verdict.why}. "
                "`pins.save(path)` them, and `tf_amp_kit.load_model(path, pins=...)`."
            )


def _shown(paths: Sequence[str]) -> str:
    return some(paths) if any(paths) else "the model"


def _usual_policy(paths: LayerPaths) -> Any:
    """Returns the half policy that most layers have, else Keras's global one."""
    policies = [layer.dtype_policy for _, layer in paths if is_half(layer.compute_dtype)]
    plain = [one for one in policies if not isinstance(one, keras.dtype_policies.DTypePolicyMap)]
    if not plain:
        return keras.config.dtype_policy()
    ((name, _),) = Counter(one.name for one in plain).most_common(1)
    return next(one for one in plain if one.name == name)
