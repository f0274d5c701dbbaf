"""What a live model uses, so that its configuration can be read in the same process."""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.tracing.paths import LayerPaths, held_by

__all__ = ["LiveObjects", "configs_stay_here"]


@contextlib.contextmanager
def configs_stay_here() -> Iterator[None]:
    """Keeps Keras from warning of what only matters where another process reads a config."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The object being serialized includes a `lambda`")
        warnings.filterwarnings("ignore", message=".*had a build config, but the model")
        yield


class LiveObjects:
    """Classes and functions that a model uses, for Keras to find them by name.

    They need not be registered: the twin takes the very same ones.

    Args:
        paths: The model's layers.
    """

    def __init__(self, paths: LayerPaths) -> None:
        self.by_name: dict[str, Any] = {}
        self._lambdas: list[Any] = []
        for _, layer in paths:
            self.add(layer)
            for operation in getattr(layer, "operations", ()):
                self.add(operation)

    def add(self, owner: Any) -> None:
        """Adds the class of an object, and what hangs on it."""
        self._add_one(owner)
        for _, value in held_by(owner):
            self._add_one(value)

    def without_lambdas(self, config: Any) -> Any:
        """Names the functions of lambdas in a config, in place of their code.

        Code alone would run without the module that it was written in.
        """
        if isinstance(config, list | tuple):
            return type(config)(self.without_lambdas(one) for one in config)
        if not isinstance(config, dict):
            return config
        if config.get("class_name") == "__lambda__":
            return self._named(config, config["config"])
        if config.keys() == {"value"} and isinstance(config["value"], tuple):
            # What is left of a lambda where an activation is meant.
            return self._named(config, config)
        return {key: self.without_lambdas(value) for key, value in config.items()}

    def _add_one(self, value: Any) -> None:
        is_function = isinstance(value, types.FunctionType)
        if is_function and value.__name__ == "<lambda>":
            self._lambdas.append(value)
        elif is_function or hasattr(value, "get_config"):
            named = value if is_function else type(value)
            if named.__module__.partition(".")[0] != "keras":
                for name in (named.__name__, keras.saving.get_registered_name(named)):
                    self.by_name.setdefault(name, named)

    def _named(self, node: dict[str, Any], code: dict[str, Any]) -> dict[str, Any]:
        parts = code["value"] if "value" in code else tuple(code.values())
        for number, function in enumerate(self._lambdas):
            if _keras.lambda_config(function) == parts:
                name = f"<lambda> {number}"
                self.by_name[name] = function
                kind = {"class_name": "function", "module": None}
                return {**kind, "config": name, "registered_name": name}
        return node
