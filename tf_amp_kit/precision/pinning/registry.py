"""Which layers were pinned: their float32 policy alone does not tell intent."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["forget", "has_level", "is_pinned", "note", "note_level", "pinned_paths"]

_reasons: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()

_leveled: Final[WeakSet[Any]] = WeakSet()


def note_level(model: Any) -> None:
    """Remembers that a model got the pins of its level."""
    _leveled.add(model)


def has_level(model: Any) -> bool:
    """Tells whether a model got the pins of its level."""
    return model in _leveled


def note(layer: Any, reason: str) -> None:
    """Remembers that a layer, sublayers included, is float32 on purpose."""
    _reasons[layer] = reason


def forget(layer: Any) -> None:
    """Forgets that a layer was pinned."""
    _reasons.pop(layer, None)


def is_pinned(layer: Any) -> bool:
    """Tells whether a layer was pinned as such, rather than with another."""
    return layer in _reasons


def pinned_paths(paths: LayerPaths) -> dict[str, str]:
    """Returns the reasons of all pins of a model by path."""
    return {path: _reasons[layer] for path, layer in paths if is_pinned(layer)}
