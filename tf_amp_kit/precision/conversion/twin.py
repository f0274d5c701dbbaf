"""The same model once more, from its own config, with other policies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.data import tiny_batch
from tf_amp_kit.errors import AmpError, ConversionError
from tf_amp_kit.precision.conversion.policies import PolicyChange
from tf_amp_kit.precision.live_objects import LiveObjects, configs_stay_here
from tf_amp_kit.tracing.inputs import candidate_specs
from tf_amp_kit.tracing.paths import ROOT, LayerPaths
from tf_amp_kit.tracing.state import undisturbed
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["make_twin"]


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
    with configs_stay_here():
        try:
            config = _keras.serialized(model, [layer for _, layer in paths])
            config = change.applied_to(live.without_lambdas(config))
            with keras.saving.custom_object_scope(live.by_name):
                twin: keras.Model = _keras.deserialized(config)
        except USER_CODE_ERRORS as error:
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
    attempts: list[tuple[Callable[..., Any], Any]] = [
        (_keras.trace_to_graph, specs) for specs in candidates
    ]
    for call, specs in [*attempts, (_call_eagerly, candidates[0])]:
        try:
            with undisturbed(LayerPaths(twin)):
                call(twin, specs.args, specs.kwargs)
        except USER_CODE_ERRORS:
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
        except USER_CODE_ERRORS:
            yield path


def _shortened(error: BaseException) -> str:
    """Returns what the first of a chain of errors says, on one line."""
    while error.__context__ is not None:
        error = error.__context__
    plain = re.sub(r"\x1b\[[0-9]*m", "", str(error))
    return " ".join(plain.split())[:200].rstrip(". ")
