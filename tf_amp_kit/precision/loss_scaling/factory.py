"""From any optimizer to one that scales the loss where the precision needs it."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import Any, Final

import keras

from tf_amp_kit.errors import LossScaleWarning, OptimizerError
from tf_amp_kit.formats import parse_precision
from tf_amp_kit.precision import state
from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer
from tf_amp_kit.precision.loss_scaling.settings import (
    DYNAMIC,
    STATIC,
    ScaleSettings,
    settings_of_keras,
)

__all__ = ["make_loss_scale_optimizer"]

_AUTO: Final = "auto"


def make_loss_scale_optimizer(
    optimizer: str | dict[str, Any] | keras.optimizers.Optimizer,
    *,
    precision: str | None = None,
    scaling: str = _AUTO,
    **settings: Any,
) -> keras.optimizers.Optimizer:
    """Gives an optimizer that scales the loss, if the precision needs it.

    float16 needs it: gradients below 3e-8 are zero there. bfloat16 and float32
    do not: they reach down to 1e-38. Use the result in `compile` or in a loop of
    your own, with any precision: code need not change with it.

    Args:
        optimizer: A name, a config, or an instance. Keras's own
            `LossScaleOptimizer` is turned into ours in any precision, with its
            state, and must not be used any more. What this function returned comes back as it is.
        precision: `"fp16"`, `"bf16"`, `"fp32"` or another spelling of them; None
            means `current_amp()`, and without it Keras's global policy.
        scaling: `"auto"` wraps for float16 alone; `"dynamic"` and `"static"`
            wrap always. An optimizer with a `loss_scale_factor` of its own keeps
            it: as a static scale when it is wrapped, unless dynamic is asked for,
            which is refused.
        **settings: What `LossScaleOptimizer` takes: `initial_scale` and so on.
            Checked always, used if the optimizer is wrapped.

    Returns:
        A `LossScaleOptimizer` around the optimizer, or the optimizer itself.

    Raises:
        OptimizerError: If `optimizer` is none, or scales in another way already;
            or if a setting is out of its range.
        TypeError: If a setting is unknown.
        PrecisionError: If `precision` is unknown.

    Example:

    >>> type(make_loss_scale_optimizer("adam", precision="fp16")).__name__
    'LossScaleOptimizer'
    >>> type(make_loss_scale_optimizer("adam", precision="bf16")).__name__
    'Adam'
    """
    if scaling not in (_AUTO, DYNAMIC, STATIC):
        raise OptimizerError(
            f"Unknown kind of loss scaling. Expected {_AUTO!r}, {DYNAMIC!r} or {STATIC!r}. "
            f"Received: scaling={scaling!r}."
        )
    wanted = _precision(precision)
    resolved = _resolve(optimizer)
    if scaling != _AUTO:
        settings = {"scaling": scaling, **settings}
    if isinstance(resolved, LossScaleOptimizer):
        _check_settings_agree(resolved, settings)
        return resolved
    if isinstance(resolved, keras.optimizers.LossScaleOptimizer):
        return _take_over(resolved, settings)
    _check_settings(settings)
    if scaling == _AUTO and wanted != "float16":
        return resolved
    if wanted == "bfloat16":
        warnings.warn(
            "bfloat16 has the range of float32, so scaling the loss gains nothing there and "
            f"costs time. Received: scaling={scaling!r}. Leave it out for bfloat16.",
            LossScaleWarning,
            stacklevel=2,
        )
    return _wrap(resolved, settings)


def _check_settings(settings: dict[str, Any]) -> None:
    """Checks in every precision, so that no mistake waits for the one that wraps."""
    known = [field.name for field in dataclasses.fields(ScaleSettings)]
    for name in settings:
        if name not in known and name != "name":
            raise TypeError(
                f"make_loss_scale_optimizer() got an unexpected keyword argument {name!r}. "
                f"Expected some of {known}."
            )
    ScaleSettings(**{name: value for name, value in settings.items() if name != "name"})


def _precision(name: str | None) -> str:
    if name is not None:
        return parse_precision(name, argument="precision")
    asked_for = state.current()
    if asked_for is not None:
        return asked_for.precision
    return str(keras.config.dtype_policy().compute_dtype)


def _resolve(optimizer: Any) -> Any:
    try:
        # Keras takes a config apart while it reads it.
        resolved = keras.optimizers.get(
            copy.deepcopy(optimizer) if isinstance(optimizer, dict) else optimizer
        )
    except ValueError as error:
        raise OptimizerError(
            "Expected the name of a Keras optimizer, a config, or a keras.optimizers.Optimizer. "
            f"Received: optimizer={optimizer!r}. {error}"
        ) from error
    if resolved is None:
        raise OptimizerError(
            "Expected the name of a Keras optimizer, a config, or a keras.optimizers.Optimizer. "
            "Received: optimizer=None."
        )
    return resolved


def _check_settings_agree(optimizer: LossScaleOptimizer, settings: dict[str, Any]) -> None:
    config = optimizer.get_config()
    other = {name: value for name, value in settings.items() if config.get(name) != value}
    if other:
        raise OptimizerError(
            "The optimizer scales the loss already, with other settings. Expected none, or the "
            f"same. Received: {', '.join(f'{name}={value!r}' for name, value in other.items())}. "
            "Pass its inner_optimizer."
        )


def _take_over(optimizer: Any, settings: dict[str, Any]) -> LossScaleOptimizer:
    kept = settings_of_keras(optimizer.initial_scale, optimizer.dynamic_growth_steps)
    twin = LossScaleOptimizer(
        optimizer.inner_optimizer, **{"name": optimizer.name, **kept, **settings}
    )
    twin.go_on_from(optimizer)
    return twin


def _wrap(optimizer: Any, settings: dict[str, Any]) -> LossScaleOptimizer:
    factor = optimizer.loss_scale_factor
    if factor is None:
        return LossScaleOptimizer(optimizer, **settings)
    kept = {"scaling": STATIC, "initial_scale": factor, **settings}
    if kept["scaling"] != STATIC or kept["initial_scale"] != factor:
        raise OptimizerError(
            "The optimizer has a fixed loss scale of its own. Expected no other beside it. "
            f"Received: loss_scale_factor={factor!r}, "
            f"{', '.join(f'{name}={value!r}' for name, value in settings.items())}. "
            "Set its loss_scale_factor to None, or leave these settings out."
        )
    _check_settings(kept)
    optimizer.loss_scale_factor = None
    return LossScaleOptimizer(optimizer, **kept)
