"""What the package replaces in Keras and TensorFlow for a while, as it is now."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import tf_amp_kit
from tf_amp_kit._keras.patching import ClassPatch

__all__ = ["snapshot"]


def snapshot() -> dict[tuple[Any, str], Any]:
    """Returns the attribute that each patch of the package would replace."""
    return {(one.owner, one.name): vars(one.owner)[one.name] for one in _patches()}


def _patches() -> list[ClassPatch]:
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(tf_amp_kit.__path__, "tf_amp_kit.")
        if not info.name.endswith("__main__")
    ]
    found: list[ClassPatch] = []
    for module in modules:
        for value in vars(module).values():
            values = value if isinstance(value, tuple) else (value,)
            found += [one for one in values if isinstance(one, ClassPatch)]
    return found
