"""Which layers were pinned, how often, and what they were before.

A float32 policy alone does not tell intent. Pins may overlap and be undone in
any order: a layer goes back when nothing pins it, or what holds it, any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from tf_amp_kit import _keras
from tf_amp_kit.precision.float32_policy import set_float32
from tf_amp_kit.tracing.paths import LayerPaths, is_below

__all__ = ["forget_level", "has_level", "note_level", "pin", "pinned_paths", "unpin"]

# The number of pins on a layer itself.
_counts: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()
# The policies of a layer before its first pin, and with it.
_policies: Final[WeakKeyDictionary[Any, tuple[Any, Any]]] = WeakKeyDictionary()
_leveled: Final[WeakSet[Any]] = WeakSet()


def pin(layer: Any) -> list[Any]:
    """Turns a layer to float32, sublayers included.

    Args:
        layer: A layer with float32 variables.

    Returns:
        The layers whose policies changed.
    """
    before = [(sub, sub.dtype_policy) for _, sub in LayerPaths(layer)]
    set_float32(layer)
    _counts[layer] = _counts.get(layer, 0) + 1
    changed = [(sub, policy) for sub, policy in before if sub.dtype_policy is not policy]
    for sub, policy in changed:
        _policies[sub] = policy, sub.dtype_policy
    return [sub for sub, _ in changed]


def unpin(model: Any, layers: Sequence[Any]) -> list[Any]:
    """Takes one pin off each of some layers.

    Args:
        model: The model that holds them.
        layers: The layers.

    Returns:
        The layers that went back to the policy that they had.
    """
    for layer in layers:
        _counts[layer] -= 1
        if not _counts[layer]:
            del _counts[layer]
    paths = LayerPaths(model)
    still = pinned_paths(paths)
    changed = []
    for layer in (sub for one in layers for _, sub in LayerPaths(one)):
        path = paths.of(layer)  # none if it has left the model
        if layer not in _policies or any(path is not None and is_below(path, p) for p in still):
            continue
        before, with_pin = _policies.pop(layer)
        if layer.dtype_policy is with_pin:  # else somebody gave it another one since
            _keras.replace_policy(layer, before)
            changed.append(layer)
    return changed


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
