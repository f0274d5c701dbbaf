"""From what a user names to the layers that are meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import PinError
from tf_amp_kit.precision.pinning.candidates import topmost
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.paths import ROOT, LayerPaths, is_below

__all__ = ["held", "resolve"]

_FORMS = (
    "a layer of the model, a layer class, a layer's path, or a pattern for `re.fullmatch` on "
    "layer paths, 'encoder/.*' for example"
)


def resolve(paths: LayerPaths, targets: tuple[Any, ...]) -> dict[str, str]:
    """Finds the layers that targets name.

    Args:
        paths: The paths of the model.
        targets: Layers, layer classes and patterns.

    Returns:
        Reasons by path, without layers below others of them.

    Raises:
        PinError: If a target is of another kind, or matches no layer.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> resolve(LayerPaths(model), ("den.*",))
    {'dense': "matches 'den.*'"}
    """
    found: dict[str, str] = {}
    for target in targets:
        matching = dict(_matching(paths, target))
        if not matching:
            raise PinError(f"{_nothing(paths, target)} Expected {_FORMS}.")
        found = matching | found
    return topmost(dict(held(paths, topmost(found))))


def held(paths: LayerPaths, reasons: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Means the layers of a graph model for the model: its own policy does nothing.

    Args:
        paths: The paths of the model.
        reasons: Why, by path.

    Yields:
        Paths with reasons, none of them of a graph model.
    """
    graphs = {path for path, layer in paths if _keras.is_functional(layer)}
    for wanted, reason in reasons.items():
        if wanted not in graphs:
            yield wanted, reason
        else:
            yield from (
                (path, reason)
                for path, _ in paths
                if path and is_below(path, wanted) and path not in graphs
            )


def _matching(paths: LayerPaths, target: Any) -> Iterator[tuple[str, str]]:
    layers = [(path, layer) for path, layer in paths if path]
    root = paths[ROOT]
    if isinstance(target, str) and target in dict(layers):
        yield target, "named"
    elif isinstance(target, str):
        pattern = _compiled(target)
        for path, _ in layers:
            if pattern.fullmatch(path):
                yield path, f"matches {target!r}"
    elif isinstance(target, type) and issubclass(target, keras.layers.Layer):
        for path, layer in layers:
            if isinstance(layer, target):
                yield path, f"is a {target.__name__}"
        if type(root) is target:
            yield ROOT, f"is a {target.__name__}"
    elif isinstance(target, keras.layers.Layer):
        path_of = paths.of(target)
        if path_of is not None:
            yield path_of, "given"
    else:
        raise PinError(f"A target of another kind. Expected {_FORMS}. Received: {target!r}.")


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PinError(
            f"The pattern is no regular expression: {error}. Expected {_FORMS}. "
            f"Received: {pattern!r}."
        ) from None


def _nothing(paths: LayerPaths, target: Any) -> str:
    if isinstance(target, str):
        known = [path for path, _ in paths if path]
        near = difflib.get_close_matches(target, known, cutoff=0.4)
        hint = f"Near misses: {some(near)}." if near else f"The model has {some(known)}."
        return f"No layer matches the pattern {target!r}. {hint}"
    if isinstance(target, type):
        names = sorted({type(layer).__name__ for path, layer in paths if path})
        return f"The model has no layer of class {target.__name__}. It has {', '.join(names)}."
    return f"The layer {target.name!r} is not part of the model."
