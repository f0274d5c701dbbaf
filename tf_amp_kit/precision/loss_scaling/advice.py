"""What a user is told once, when an optimizer sees itself misused."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.callers import running_methods_of, stacklevel_of_user
from tf_amp_kit.errors import LossScaleWarning
from tf_amp_kit.precision.loss_scaling.shadows import Shadows, own_state
from tf_amp_kit.tracing.paths import LayerPaths, held_by

__all__ = ["Advice"]

_NUM_EXAMPLES: Final = 3


class Advice:
    """Remembers what an optimizer was used for, and what was said.

    Args:
        expects_scaled_losses: Whether a loss that nobody scaled makes a difference.
    """

    def __init__(self, *, expects_scaled_losses: bool) -> None:
        self._has_scaled_a_loss = not expects_scaled_losses
        self._is_done_with_state = False
        self._was_traced_outside_of_fit = False

    def note_that_a_loss_was_scaled(self) -> None:
        """Takes it that the gradients to come are scaled."""
        self._has_scaled_a_loss = True

    def check_that_a_loss_was_scaled(self) -> None:
        """Warns once, before the first gradients that cannot be scaled ones."""
        if self._has_scaled_a_loss:
            return
        _warn(
            "Gradients are about to be divided by the loss scale, but this optimizer never "
            "scaled a loss. Expected gradients of optimizer.scale_loss(loss). Take them of "
            "that, inside the GradientTape; for gradients that are not scaled, call "
            "apply_unscaled()."
        )
        self._has_scaled_a_loss = True

    def note_that_state_is_cared_for(self) -> None:
        """Takes it that who protects something protects what is due."""
        self._is_done_with_state = True

    def check_that_state_is_protected(self, optimizer: Any, shadows: Shadows) -> None:
        """Warns once if a model in training has state that a skip would not restore."""
        if self._is_done_with_state and tf.executing_eagerly():
            return
        models = (one for one in running_methods_of(keras.Model) if _owns(one, optimizer))
        model = next(models, None)
        if model is None and not tf.executing_eagerly():
            self._was_traced_outside_of_fit = True
        if self._is_done_with_state:
            return
        self._is_done_with_state = True
        exposed = [] if model is None else _exposed_layers(model, shadows)
        if exposed:
            count = "1 layer keeps" if len(exposed) == 1 else f"{len(exposed)} layers keep"
            more = " and more" if len(exposed) > _NUM_EXAMPLES else ""
            _warn(
                f"{count} moving statistics, which a skipped step leaves as the bad batch made "
                f"them: {', '.join(exposed[:_NUM_EXAMPLES])}{more}. Pass "
                "callbacks=[AmpMonitor()] to fit, or call optimizer.protect(model) before "
                "training."
            )

    def check_that_steps_are_traced_anew(self, optimizer: Any, targets: Iterable[Any]) -> None:
        """Renews train functions that do not protect yet; warns of other functions."""
        for one in targets:
            if (
                isinstance(one, keras.Model)
                and one.train_function is not None
                and _owns(one, optimizer)
            ):
                one.make_train_function(force=True)
        if self._was_traced_outside_of_fit:
            _warn(
                "A step was traced before this call, and does not protect what was just named. "
                "Expected protect() before the first step. Trace it again: make a new tf.function."
            )


def _owns(model: Any, optimizer: Any) -> bool:
    return any(value is optimizer for _, value in held_by(model))


def _exposed_layers(model: Any, shadows: Shadows) -> list[str]:
    # State without a `training` argument is adapted once, like a Normalization's.
    return [
        path or layer.name
        for path, layer in LayerPaths(model)
        if layer.trainable
        and "training" in inspect.signature(layer.call).parameters
        and any(variable not in shadows for variable in own_state(layer))
    ]


def _warn(message: str) -> None:
    warnings.warn(message, LossScaleWarning, stacklevel=stacklevel_of_user())
