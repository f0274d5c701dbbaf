"""Model files, opened under the precision that they were made with."""

from __future__ import annotations

import os
import warnings
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import ConversionWarning, LoadError, PinError
from tf_amp_kit.formats import parse_precision
from tf_amp_kit.precision.conversion.compiling import inner_optimizer_of, scales_loss
from tf_amp_kit.precision.conversion.convert import convert_model, to_float32
from tf_amp_kit.precision.conversion.files import SavedModel, read_saved, weights_file
from tf_amp_kit.precision.curing.scope import curing_unless_resting
from tf_amp_kit.precision.layer_policies import policy_scope
from tf_amp_kit.precision.pinning.carried import apply_carried
from tf_amp_kit.precision.pinning.pins import HoldsPins, Pins
from tf_amp_kit.precision.pinning.policy_map import pins_are_carried

__all__ = ["load_model"]


def load_model(
    path: str | os.PathLike[str],
    precision: str | None = None,
    *,
    pins: Pins | HoldsPins | str | os.PathLike[str] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> keras.Model:
    """Opens a model file as it was saved, whatever Keras's policy is by now.

    A file tells the policy of its layers, and not the global one under which
    they were made. Opened by Keras under another, a mixed_float16 model loses
    its loss scaling together with the optimizer's state, and composite layers
    make their sublayers in the wrong precision. This finds the policy, makes it
    the global one while the file is opened, and puts yours back.

    Args:
        path: A `.keras` file, the folder that one was unpacked to, or an `.h5`
            file with a whole model.
        precision: What to convert the model to, as `convert_model` does; None
            keeps the file's.
        pins: Pins to apply at the end, a precision plan, or the JSON file of either.
        custom_objects: As in `keras.saving.load_model`: classes and functions
            by the names that the file has for them.
        compile: Whether to compile the model, and to load the optimizer's state.
        safe_mode: Whether to refuse code in the file, lambdas for example.

    Returns:
        The model.

    Raises:
        LoadError: If there is no model in the file, or its optimizer is not as
            it was saved.
        PrecisionError: If `precision` is unknown.
        PinError: If `pins` are no pins, or of another model.
        ConversionError: As in `convert_model`.
        ValueError: Whatever else Keras says of the file.
        TypeError: Likewise; a class that is not registered, for example.

    Example:

    >>> import keras, os, tempfile
    >>> half = keras.layers.Dense(2, dtype="mixed_bfloat16")
    >>> model = keras.Sequential([keras.Input((3,)), half])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.keras")
    ...     model.save(path)
    ...     load_model(path, "fp32").outputs[0].dtype
    'float32'
    """
    if precision is not None:
        parse_precision(precision, argument="precision")
    pins = Pins.parse(pins)
    saved = read_saved(path)
    policy = keras.saving.deserialize_keras_object(saved.policy)
    with (
        policy_scope(policy),
        keras.saving.custom_object_scope(custom_objects or {}),
        _keras.sharing_revived(),
        pins_are_carried(),
        # What failed in half when it was made fails again, before its pins can be applied.
        curing_unless_resting(),
    ):
        model = _loaded(str(path), saved, compile, safe_mode)
        _apply_carried(path, model)
        if precision is not None:
            is_float32 = parse_precision(precision) == "float32"
            model = to_float32(model) if is_float32 else convert_model(model, precision)
    if pins is not None:
        pins.apply(model)
    return model


def _loaded(path: str, saved: SavedModel, compile: bool, safe_mode: bool) -> keras.Model:
    """Opens the file, with an optimizer that scales the loss just if the saved one did."""
    model = keras.saving.load_model(
        path,
        # Keras would wrap an optimizer that was saved unwrapped, and lose its state.
        compile=compile and saved.scales is not False,
        safe_mode=safe_mode,
    )
    if compile and saved.has_h5_slots and not _has_slots(model):
        warnings.warn(
            "Keras loads no optimizer state from this .h5 file: training goes on with fresh "
            f"slots and the step count 0. Received: {path!r}. Save the model as a .keras file.",
            ConversionWarning,
            stacklevel=stacklevel_of_user(),
        )
        # Keras builds the optimizer for no variables at all, and `fit` fails.
        model.compile_from_config(model.get_compile_config())
    if not compile or saved.scales is None:
        return model
    if saved.scales is False and saved.compile_config:
        model.compile_from_config({**saved.compile_config, "auto_scale_loss": False})
        model.load_weights(weights_file(path))
    if saved.scales != scales_loss(getattr(model, "optimizer", None)):
        raise LoadError(
            "The file's optimizer scales the loss, and the model that Keras makes of the file "
            f"does not. Received: {path!r} with the policy {model.dtype_policy.name!r}. "
            "Pass compile=False, compile with a LossScaleOptimizer, and call "
            "model.load_weights(path), which loads the optimizer's state too."
        )
    return model


def _apply_carried(path: Any, model: keras.Model) -> None:
    try:
        apply_carried(model)
    except PinError as error:
        raise LoadError(
            "The file pins layers that the model has no more: its code has changed since. "
            f"Received: {str(path)!r}. {error}"
        ) from error


def _has_slots(model: Any) -> bool:
    return bool(_keras.trainable_variables_of(inner_optimizer_of(model.optimizer)))
