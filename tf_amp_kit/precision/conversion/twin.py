"""The same model once more, from its own config, with other policies."""

from __future__ import annotations

import re
import types
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.data import tiny_batch
from tf_amp_kit.errors import AmpError, ConversionError
from tf_amp_kit.precision.conversion.policies import PolicyChange
from tf_amp_kit.tracing.inputs import candidate_specs
from tf_amp_kit.tracing.paths import ROOT, LayerPaths, held_by
from tf_amp_kit.tracing.state import undisturbed

__all__ = ["CONFIG_ERRORS", "LiveObjects", "make_twin"]

# What configs and users' own `get_config` and `from_config` raise.
CONFIG_ERRORS = (AttributeError, LookupError, NotImplementedError, TypeError, ValueError)


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


def make_twin(
    model: keras.Model, change: PolicyChange, live: LiveObjects, paths: LayerPaths
) -> keras.Model:
    """Makes a model anew; its weights are fresh, and it is not compiled.

    Args:
        model: The model. It stays as it is.
        change: What its policies become. The new one must be the global one.
        live: What Keras has to find by name; lambdas are added.
        paths: The model's layers.

    Raises:
        ConversionError: If the model has no config that rebuilds it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The object being serialized includes a `lambda`")
        warnings.filterwarnings("ignore", message=".*had a build config, but the model")
        try:
            config = _keras.serialized(model, [layer for _, layer in paths])
            config = change.applied_to(live.without_lambdas(config))
            with keras.saving.custom_object_scope(live.by_name):
                twin: keras.Model = _keras.deserialized(config)
        except CONFIG_ERRORS as error:
            raise ConversionError(
                f"The model cannot be made from its own config: {_shortened(error)}. Expected "
                "get_config() and from_config() that rebuild the model. "
                f"Received: {_culprits(paths)}. Add them; or build the model by code "
                "under the new policy, and give it the weights with set_weights()."
            ) from error
    _build_like(twin, model)
    return twin


def _build_like(twin: keras.Model, model: keras.Model) -> None:
    """Builds what a config could not build: by a call, which is traced if it can be."""
    if len(twin.variables) == len(model.variables):
        return
    try:
        candidates = list(candidate_specs(model, None))
    except AmpError:
        return
    attempts = [(_keras.trace_to_graph, specs) for specs in candidates]
    for call, specs in [*attempts, (_call_eagerly, candidates[0])]:
        try:
            with undisturbed(LayerPaths(twin)):
                call(twin, specs.args, specs.kwargs)
        except (*CONFIG_ERRORS, RuntimeError):
            continue
        return


def _call_eagerly(model: keras.Model, args: Any, kwargs: Any) -> None:
    arguments = {name: tiny_batch(None, spec) for name, spec in kwargs.items()}
    model(*(tiny_batch(None, spec) for spec in args), **arguments)


def _culprits(paths: LayerPaths) -> str:
    """Names the innermost layers whose config fails, or the model if none fails alone."""
    failing = list(_without_config(paths))
    innermost = [path for path in failing if not any(one.startswith(f"{path}/") for one in failing)]
    named = [path for path in innermost if path] or innermost
    return ", ".join(
        f"{f'the layer {path!r}' if path else 'the model'} of class {type(paths[path]).__name__}"
        for path in named or [ROOT]
    )


def _without_config(paths: LayerPaths) -> Iterator[str]:
    for path, layer in paths:
        try:
            layer.get_config()
        except CONFIG_ERRORS:
            yield path


def _shortened(error: BaseException) -> str:
    """Returns what the first of a chain of errors says, on one line."""
    while error.__context__ is not None:
        error = error.__context__
    plain = re.sub(r"\x1b\[[0-9]*m", "", str(error))
    return " ".join(plain.split())[:200].rstrip(". ")
