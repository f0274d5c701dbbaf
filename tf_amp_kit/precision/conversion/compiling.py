"""Losses, metrics and the optimizer with its state, from a model to its twin."""

from __future__ import annotations

import warnings
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import ConversionError, ConversionWarning
from tf_amp_kit.precision.conversion.policies import PolicyChange
from tf_amp_kit.precision.conversion.state import LayerPair, copy_values, optimizer_states
from tf_amp_kit.precision.live_objects import LiveObjects
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["compile_alike", "inner_optimizer_of", "scales_loss"]


def compile_alike(
    pair: LayerPair, change: PolicyChange, twins: dict[int, Any], live: LiveObjects
) -> None:
    """Compiles a twin as its model is compiled, with an optimizer of its own.

    Loss scaling belongs to float16. A wrapper around the optimizer comes off
    when the model leaves it; Keras adds one when the model comes to it; one that
    was there without float16 stays.

    Args:
        pair: The model and the twin, or models inside of them.
        change: What policies have become.
        twins: The twin's variables, by the `id` of the model's own.
        live: What Keras has to find by name; what the arguments use is added.

    Raises:
        ConversionError: If a metric or the optimizer has no config.
    """
    model, twin = pair.old, pair.new
    if not _keras.has_own_compile(model):
        twin.compile(**_new_arguments(model, change, live))
    elif _keras.can_repeat_compile(model):
        if not twin.compiled:
            twin.compile_from_config(model.get_compile_config())
    else:
        _warn(
            f"The class {type(model).__name__} has a compile() of its own, and no "
            "compile_from_config(): the converted model is not compiled. Call its compile()."
        )
        return
    if model.optimizer is not None and model.optimizer.built:
        _copy_optimizer(model.optimizer, twin.optimizer, twins)


def scales_loss(optimizer: Any) -> bool:
    """Tells whether an optimizer, or None for none, is a wrapper that scales the loss."""
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def inner_optimizer_of(optimizer: Any) -> Any:
    """Returns what a wrapper scales the loss for, and any other optimizer itself."""
    return optimizer.inner_optimizer if scales_loss(optimizer) else optimizer


def _new_arguments(model: Any, change: PolicyChange, live: LiveObjects) -> dict[str, Any]:
    arguments = _keras.compile_arguments(model)
    arguments["optimizer"] = _new_optimizer(model, arguments["optimizer"], change, live)
    for name in ("metrics", "weighted_metrics"):
        arguments[name] = _new_metrics(arguments[name], live)
    if not scales_loss(model.optimizer) and model.dtype_policy.name == "mixed_float16":
        arguments["auto_scale_loss"] = False
    return arguments


def _new_optimizer(model: Any, given: Any, change: PolicyChange, live: LiveObjects) -> Any:
    optimizer = model.optimizer
    if optimizer is None:
        return None
    is_automatic = scales_loss(optimizer) and given is not optimizer
    leaves_float16 = change.compute_dtype != "float16" and _has_float16(model)
    if scales_loss(optimizer) and (is_automatic or leaves_float16):
        optimizer = optimizer.inner_optimizer
    return _remade(optimizer, live)


def _copy_optimizer(old: Any, new: Any, twins: dict[int, Any]) -> None:
    """Copies slots, iterations, learning rate and, between wrappers of a kind, the scale."""
    inner, new_inner = inner_optimizer_of(old), inner_optimizer_of(new)
    if type(inner) is not type(new_inner):
        _warn(
            f"compile_from_config() made a {type(new_inner).__name__} where the model has a "
            f"{type(inner).__name__}: the optimizer's state is not taken over."
        )
        return
    variables = _keras.trainable_variables_of(inner)
    spared = _keras.spared_from_decay(inner, variables)
    if spared:
        new_inner.exclude_from_weight_decay(var_list=[twins[id(one)] for one in spared])
    new.build([twins[id(one)] for one in variables])
    pair = (old, new) if type(old) is type(new) else (inner, new_inner)
    states, new_states = map(optimizer_states, pair)
    if _shapes(states) != _shapes(new_states):
        _warn(
            f"The config of {type(inner).__name__} makes an optimizer with other variables: the "
            f"optimizer's state is not taken over. Expected {_shapes(states)}. "
            f"Received: {_shapes(new_states)}."
        )
        return
    copy_values(list(states.values()), [new_states[place] for place in states])


def _shapes(states: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {place: tuple(variable.shape) for place, variable in states.items()}


def _new_metrics(given: Any, live: LiveObjects) -> Any:
    """Makes metrics with a state of their own, in the structure that was given."""
    if isinstance(given, dict):
        return {key: _new_metrics(one, live) for key, one in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(_new_metrics(one, live) for one in given)
    return _remade(given, live) if isinstance(given, keras.metrics.Metric) else given


def _remade(thing: Any, live: LiveObjects) -> Any:
    live.add(thing)
    try:
        with keras.saving.custom_object_scope(live.by_name):
            return type(thing).from_config(thing.get_config())
    except USER_CODE_ERRORS as error:
        raise ConversionError(
            f"{type(thing).__name__} cannot be made from its own config: {error}. Expected "
            f"get_config() and from_config() that rebuild it. Received: {thing!r}. "
            "Add them, or convert the model before compile()."
        ) from error


def _warn(message: str) -> None:
    warnings.warn(message, ConversionWarning, stacklevel=stacklevel_of_user())


def _has_float16(model: Any) -> bool:
    return any(layer.compute_dtype == "float16" for _, layer in LayerPaths(model))
