"""Which layers were pinned, how often, and what they were before.

A float32 policy alone does not tell intent. Pins may overlap and be undone in
any order: a layer goes back when nothing pins it, or what holds it, any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.layer_policies import Change, set_float32, widen_inputs
from tf_amp_kit.tracing.paths import LayerPaths, is_below

__all__ = ["forget_level", "has_level", "note_level", "pin", "pinned_paths", "unpin"]

# The number of pins on a layer itself.
_counts: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()
# How to change back what the first pin changed.
_changes: Final[WeakKeyDictionary[Any, list[Change]]] = WeakKeyDictionary()
_leveled: Final[WeakSet[Any]] = WeakSet()


def pin(paths: LayerPaths, path: str) -> list[Any]:
    """Turns a layer to float32, sublayers included.

    Args:
        paths: The paths of the model that holds it.
        path: The path of a layer with float32 variables.

    Returns:
        The layers and models that changed.
    """
    layer = paths[path]
    changes = set_float32(layer)
    for above, model in paths:
        changes += widen_inputs(model) if is_below(path, above) else []
    _counts[layer] = _counts.get(layer, 0) + 1
    for change in changes:
        _changes.setdefault(change.layer, []).append(change)
    return [change.layer for change in changes]


def unpin(model: Any, layers: Sequence[Any]) -> list[Any]:
    """Takes one pin off each of some layers.

    Args:
        model: The model that holds them.
        layers: The layers.

    Returns:
        The layers and models that were changed back.
    """
    for layer in layers:
        _counts[layer] -= 1
        if not _counts[layer]:
            del _counts[layer]
    paths = LayerPaths(model)
    still = pinned_paths(paths)
    changed = []
    candidates = [sub for one in layers for _, sub in LayerPaths(one)]
    candidates += [one for _, one in paths if isinstance(one, keras.Model)]
    for layer in dict.fromkeys(candidates):
        path = paths.of(layer)  # none if it has left the model
        if layer in _changes and not (path is not None and _is_needed(layer, path, still)):
            for change in reversed(_changes.pop(layer)):
                change.undo()
            changed.append(layer)
    return changed


def _is_needed(layer: Any, path: str, still: Sequence[str]) -> bool:
    """Tells whether a pin is on a layer or around it, or in a model that takes float32."""
    is_graph = _keras.is_functional(layer)
    return any(is_below(path, pin) or (is_graph and is_below(pin, path)) for pin in still)


def pinned_paths(paths: LayerPaths) -> tuple[str, ...]:
    """Returns the paths of the layers of a model that are pinned as such."""
    return tuple(path for path, layer in paths if layer in _counts)


def note_level(model: Any) -> None:
    """Remembers that a model got the pins of its level."""
    _leveled.add(model)


def forget_level(model: Any) -> None:
    """Forgets it again."""
    _leveled.discard(model)


def has_level(model: Any) -> bool:
    """Tells whether a model got the pins of its level."""
    return model in _leveled
