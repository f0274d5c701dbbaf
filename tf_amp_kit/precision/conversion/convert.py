"""The same model in another precision."""

from __future__ import annotations

import keras

from tf_amp_kit.precision.conversion.check import (
    settle_policies,
    warn_of_half_code,
    warn_of_half_losses,
)
from tf_amp_kit.precision.conversion.compiling import compile_alike
from tf_amp_kit.precision.conversion.policies import PolicyChange, change_for
from tf_amp_kit.precision.conversion.state import copy_state, pair_layers
from tf_amp_kit.precision.conversion.twin import make_twin
from tf_amp_kit.precision.layer_policies import policy_scope
from tf_amp_kit.precision.live_objects import LiveObjects
from tf_amp_kit.precision.pinning.applying import set_pins
from tf_amp_kit.precision.pinning.policy_map import pins_are_carried
from tf_amp_kit.precision.pinning.registry import left_in_half, note_left, pinned_paths
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.state import undisturbed

__all__ = ["convert_model", "to_float32"]


def convert_model(model: keras.Model, precision: str) -> keras.Model:
    """Makes a twin of a model that runs in another precision.

    Layers keep the policy that they were built with, so a trained float32 model
    becomes a half one, or the other way round, only by being built anew: this
    does so, from the model's own config. The twin has the same names, weights
    and statistics bit for bit, states of random seeds, `trainable` flags, and,
    if the model is compiled, the same losses, new metrics, and an optimizer of
    its own with the same slots, step count and learning rate. Half precision
    means a mixed policy: weights are float32, and those of a pure half model
    become so.

    Which layers change: if the model is a half one (its own policy is, or most
    of its layers are), then those in half, and float32 ones stay, for somebody
    pinned them. If it is a float32 one, all layers change, for a float32 that
    was asked for looks like any other: pin again afterwards. To float32, all
    half ones change. Layers with other dtypes, and inputs, stay as they are.

    A half model that is compiled and cannot be trained, because a layer adds a
    loss in half, is warned about with the layer's path.

    Loss scaling follows: coming to float16, `compile` wraps the optimizer;
    leaving it, the wrapper comes off, and what it wrapped goes on.

    Args:
        model: The model, built or not, compiled or not. It stays as it is.
        precision: `"bf16"`, `"fp16"`, `"fp32"`, or any other spelling that
            `enable_amp` takes, except `"auto"`.

    Returns:
        The twin.

    Raises:
        ModelError: If `model` is no Keras model.
        PrecisionError: If `precision` is unknown.
        ConversionError: If the model is quantized, if a config does not rebuild
            what it is the config of, or if code makes a layer with half
            variables whatever its config says.

    Example:

    >>> import keras, numpy as np
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="head")])
    >>> twin = convert_model(model, "bf16")
    >>> twin.get_layer("head").compute_dtype, model.get_layer("head").compute_dtype
    ('bfloat16', 'float32')
    >>> bool(np.all(twin.get_weights()[0] == model.get_weights()[0]))
    True
    """
    check_keras_model(model)
    paths = LayerPaths(model)
    return _converted(model, change_for(model, precision, paths), paths)


def to_float32(model: keras.Model) -> keras.Model:
    """Makes a float32 twin of a model: to export it, or to look where half differs.

    TensorFlow Lite and many servers know no bfloat16, and a mixed model's graph
    is full of casts. The twin has no layer in half, pinned or not, and computes
    what the same code under a float32 policy computes with these weights, to the
    bit. A cast in user code that names a half dtype stays, and is warned about
    with its line. See `convert_model` for what the twin takes over.

    Args:
        model: The model. It stays as it is.

    Returns:
        The twin.

    Raises:
        AmpError: As in `convert_model`.

    Example:

    >>> import keras
    >>> half = keras.layers.Dense(2, dtype="mixed_bfloat16")
    >>> model = keras.Sequential([keras.Input((3,)), half])
    >>> model.outputs[0].dtype, to_float32(model).outputs[0].dtype
    ('bfloat16', 'float32')
    """
    twin = convert_model(model, "float32")
    warn_of_half_code(twin)
    return twin


def _converted(model: keras.Model, change: PolicyChange, paths: LayerPaths) -> keras.Model:
    # Building draws seeds, and `get_config` is user code.
    with undisturbed(paths), policy_scope(change.policy), pins_are_carried():
        live = LiveObjects(paths)
        twin = make_twin(model, change, live, paths)
        twin_paths = LayerPaths(twin)
        pairs = pair_layers(paths, twin_paths)
        settle_policies(pairs, twin_paths, change)
        twins = copy_state(pairs)
        for pair in pairs:
            if getattr(pair.old, "compiled", False):
                compile_alike(pair, change, twins, live)
        pinned = pinned_paths(paths) if change.is_to_half else ()
        if pinned:
            reasons = dict.fromkeys(pinned, "pinned before the conversion")
            set_pins(twin, reasons, is_named=False, look=False)
        note_left(twin, left_in_half(model))
        if change.is_to_half and twin.compiled:
            warn_of_half_losses(twin, twin_paths)
    return twin
