"""Private names of Keras about what a model is made of: configs, states, compile arguments."""

from __future__ import annotations

from typing import Any

import keras
from keras.src.saving import serialization_lib
from keras.src.trainers.trainer import Trainer
from keras.src.utils import python_utils

from tf_amp_kit._keras.patching import ClassPatch
from tf_amp_kit._keras.sharing import sharing_revived, sharing_told

_no_compile_config = ClassPatch(Trainer, "get_compile_config", lambda original: lambda model: None)


def serialized(model: Any, layers: list[Any]) -> dict[str, Any]:
    """Returns a model's config, in which shared layers are told to be shared.

    Uses `saving.serialization_lib.ObjectSharingScope`, in which Keras writes its
    files: without it a layer of two models becomes two layers. Compile arguments
    are left out by way of `Trainer.get_compile_config`, since they need not have
    a config while a model lives.

    Args:
        model: The model.
        layers: All layers of it.
    """
    with (
        _no_compile_config.installed(),
        sharing_told(layers),
        serialization_lib.ObjectSharingScope(),
    ):
        config: dict[str, Any] = serialization_lib.serialize_keras_object(model)
    return config


def deserialized(config: dict[str, Any]) -> Any:
    """Makes a model from what `serialized` returned.

    Uses `ObjectSharingScope` as above. Code in the config is run: it comes from
    a model of this process.
    """
    with sharing_revived(), serialization_lib.ObjectSharingScope():
        return serialization_lib.deserialize_keras_object(config, safe_mode=False)


def lambda_config(function: Any) -> Any:
    """Returns code, defaults and closure of a function, as a config holds them.

    Uses `utils.python_utils.func_dump`: no public function tells which lambda
    a config was written for.
    """
    return serialization_lib.serialize_keras_object(python_utils.func_dump(function))


def compile_arguments(model: Any) -> dict[str, Any]:
    """Returns what `compile` was called with; the optimizer before any wrapping.

    Uses `Trainer._compile_config`: the public `get_compile_config` serializes
    losses and metrics, which need not have a config.
    """
    return dict(model._compile_config.config)


def has_own_compile(model: Any) -> bool:
    """Tells whether a model's class replaces `compile`; what that got is its own affair.

    Compares with `Trainer`, which has no public name.
    """
    return type(model).compile is not Trainer.compile


def can_repeat_compile(model: Any) -> bool:
    """Tells whether a model's class says how to repeat a `compile` of its own.

    Compares with `Trainer`, which has no public name.
    """
    return type(model).compile_from_config is not Trainer.compile_from_config


def own_variables(layer: Any) -> list[Any]:
    """Returns the variables that a layer itself created, in the order of its files.

    Uses `Layer._trainable_variables` and `_non_trainable_variables`: the public
    lists hold those of the sublayers too, and move with `trainable`.
    """
    names = ("_trainable_variables", "_non_trainable_variables")
    return [variable for name in names for variable in getattr(layer, name, ())]


def copy_trainable(source: Any, target: Any) -> None:
    """Makes one layer as trainable as another, and leaves its sublayers alone.

    Uses `Layer._trainable`: the public setter reaches all sublayers too.
    """
    vars(target)["_trainable"] = source._trainable
    for old, new in zip(own_variables(source), own_variables(target), strict=True):
        if old.trainable != new.trainable:
            new.trainable = old.trainable


def copy_call_marks(source: Any, target: Any) -> None:
    """Makes a layer take its inputs, and be exported, as another one does.

    Uses `Layer._called`, without which `export` refuses a model, and
    `Functional._inputs_struct`, which Keras 3.10 makes a list of a single input
    in all that it makes from a config. Neither can be set in public.
    """
    attributes = vars(target)
    attributes["_called"] = source._called
    structure = attributes.get("_inputs_struct")
    if isinstance(structure, list) and isinstance(source._inputs_struct, keras.KerasTensor):
        attributes["_inputs_struct"] = structure[0]


def spared_from_decay(optimizer: Any, variables: list[Any]) -> list[Any]:
    """Returns the variables that `exclude_from_weight_decay` was called for.

    Uses `Optimizer._use_weight_decay`: nothing public tells, and no config.
    """
    return [variable for variable in variables if not optimizer._use_weight_decay(variable)]
