"""Which layers are pinned, why, and what they were before.

A float32 policy alone does not tell intent. Pins may overlap and be undone in
any order: a layer goes back when nothing pins it, or what holds it, any more.
Nothing here keeps a layer or a model alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.layer_policies import Was, change_back, set_float32, widen_inputs
from tf_amp_kit.tracing.paths import LayerPaths, is_below

__all__ = ["Claim", "claims", "left_in_half", "note_left", "pin", "pinned_paths", "unpin"]


@dataclass(frozen=True)
class Claim:
    """One pin on a layer.

    Attributes:
        reason: Why it was pinned.
        is_named: Whether somebody named the layer; else its level pins it, or
            the configuration that it comes from.
    """

    reason: str
    is_named: bool


_claims: Final[WeakKeyDictionary[Any, list[Claim]]] = WeakKeyDictionary()
_before: Final[WeakKeyDictionary[Any, list[Was]]] = WeakKeyDictionary()
_left: Final[WeakKeyDictionary[Any, frozenset[str]]] = WeakKeyDictionary()


def pin(paths: LayerPaths, path: str, claim: Claim) -> list[Any]:
    """Turns a layer to float32, sublayers included.

    Args:
        paths: The paths of the model that holds it.
        path: The path of a layer with float32 variables.
        claim: Why.

    Returns:
        The layers and models that changed.
    """
    changed = set_float32(paths[path])
    for above, model in paths:
        changed += widen_inputs(model) if is_below(path, above) else []
    _claims.setdefault(paths[path], []).append(claim)
    for layer, was in changed:
        _before.setdefault(layer, []).append(was)
    return [layer for layer, _ in changed]


def unpin(model: Any, pinned: Sequence[tuple[Any, Claim]]) -> list[Any]:
    """Takes pins off, where they still are.

    Args:
        model: The model that holds the layers.
        pinned: Layers, each with the pin to take off; others of the model with the same
            pin lose it, too.

    Returns:
        The layers and models that were changed back.
    """
    paths = LayerPaths(model)
    layers = dict.fromkeys([*(layer for layer, _ in pinned), *(layer for _, layer in paths)])
    gone = {id(claim) for _, claim in pinned}
    freed = [layer for layer in layers if any(id(one) in gone for one in claims(layer))]
    for layer in freed:
        others = [one for one in _claims.pop(layer) if id(one) not in gone]
        if others:
            _claims[layer] = others
    still = pinned_paths(paths)
    candidates = [sub for layer in freed for _, sub in LayerPaths(layer)]
    candidates += [one for _, one in paths if isinstance(one, keras.Model)]
    changed = []
    for layer in dict.fromkeys(candidates):
        path = paths.of(layer)  # none if it has left the model
        if layer in _before and not (path is not None and _is_needed(layer, path, still)):
            for was in _before.pop(layer):
                change_back(layer, was)
            changed.append(layer)
    return changed


def claims(layer: Any) -> tuple[Claim, ...]:
    """Returns the pins on a layer itself."""
    return tuple(_claims.get(layer, ()))


def pinned_paths(paths: LayerPaths) -> tuple[str, ...]:
    """Returns the paths of the layers of a model that are pinned as such."""
    return tuple(path for path, layer in paths if layer in _claims)


def note_left(model: Any, left: Iterable[str]) -> None:
    """Remembers which layers a model's level left in half, because it had to."""
    _left[model] = frozenset(left)


def left_in_half(model: Any) -> frozenset[str]:
    """Returns the paths of what a model's level had to leave in half."""
    return _left.get(model, frozenset())


def _is_needed(layer: Any, path: str, still: Sequence[str]) -> bool:
    """Tells whether a pin is on a layer or around it, or in a model that takes float32."""
    is_graph = _keras.is_functional(layer)
    return any(is_below(path, pin) or (is_graph and is_below(pin, path)) for pin in still)
