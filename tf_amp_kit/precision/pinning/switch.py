"""Turning layers to float32 and back, with all that depends on their policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.pinning import files, registry
from tf_amp_kit.tracing.paths import LayerPaths, is_below
from tf_amp_kit.tracing.state import undisturbed

__all__ = ["Switch"]


@dataclass
class Switch:
    """Pins of one call, and how to take them back.

    Args:
        model: The model that holds the layers.
        made_under: The global policy that the model is made under.
    """

    model: Any
    made_under: Any
    _pinned: list[Any] = field(default_factory=list)
    _changed: list[Any] = field(default_factory=list)

    def pin(self, pinned: Iterable[str]) -> None:
        """Turns layers to float32, sublayers included; `settle` and `renew` follow.

        Args:
            pinned: Paths of layers with float32 variables.
        """
        paths = LayerPaths(self.model)
        for path in pinned:
            files.unsettle(paths[files.owner_of(paths, path)])
            self._changed += registry.pin(paths, path)
            self._pinned.append(paths[path])

    def settle(self, pinned: Iterable[str]) -> dict[str, str]:
        """Gives the pins a place in the configuration of the model.

        Args:
            pinned: The paths of the pins.

        Returns:
            The verdict of `files.settle` by owner path.
        """
        paths = LayerPaths(self.model)
        owners = {files.owner_of(paths, path) for path in pinned}
        for owner in owners:
            files.unsettle(paths[owner])
        return {owner: files.settle(paths[owner], self.made_under) for owner in owners}

    def undo(self) -> None:
        """Takes the pins back, where no other call has pinned the same."""
        paths = LayerPaths(self.model)
        pinned = [path for path in map(paths.of, self._pinned) if path is not None]
        for path in pinned:
            files.unsettle(paths[files.owner_of(paths, path)])
        self._changed = registry.unpin(self.model, self._pinned)
        self._pinned = []
        self.settle(pinned)  # others' pins stay
        self.renew()
        self._changed = []

    def renew(self) -> None:
        """Makes the model, and what is recorded of it, follow the policies."""
        paths = list(LayerPaths(self.model))
        identities = {id(layer) for layer in self._changed}
        changed = [path for path, layer in paths if id(layer) in identities]
        around = [one for path, one in paths if any(is_below(inner, path) for inner in changed)]
        models = [one for _, one in paths if isinstance(one, keras.Model)]
        with undisturbed(LayerPaths(self.model)):
            for model in reversed(models):  # what a nested model returns comes first
                _keras.refresh_symbolic_dtypes(model, around)
        for model in models:
            _make_functions_anew(model)


def _make_functions_anew(model: Any) -> None:
    """Replaces functions that were traced with the old policies, in a running `fit` too."""
    for name in ("train", "test", "predict"):
        if getattr(model, f"{name}_function") is not None:
            getattr(model, f"make_{name}_function")(force=True)
