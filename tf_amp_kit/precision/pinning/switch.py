"""Turning layers to float32 and back, with all that depends on their policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.float32_policy import set_float32
from tf_amp_kit.precision.pinning import files, registry
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["Switch"]


@dataclass
class Switch:
    """Layers that were turned to float32, and how to turn them back.

    Args:
        model: The model that holds them.
        made_under: The global policy that the model is made under.
    """

    model: Any
    made_under: Any
    _pins: dict[str, Any] = field(default_factory=dict)
    _changes: list[tuple[Any, Any, Any]] = field(default_factory=list)

    def pin(self, reasons: dict[str, str]) -> None:
        """Turns layers to float32, sublayers included.

        Args:
            reasons: Why, by the paths of layers with float32 variables.
        """
        paths = LayerPaths(self.model)
        for path, reason in reasons.items():
            layer = paths[path]
            files.unsettle(paths[files.owner_of(paths, path)])
            before = [(sub, sub.dtype_policy) for _, sub in LayerPaths(layer)]
            set_float32(layer)
            changes = [(sub, policy, sub.dtype_policy) for sub, policy in before]
            self._changes += [one for one in changes if one[1] is not one[2]]
            if not registry.is_pinned(layer):
                registry.note(layer, reason)
                self._pins[path] = layer

    def settle(self) -> dict[str, str]:
        """Makes the model follow, and gives the pins a place in its configuration.

        Returns:
            The verdict of `files.settle` by owner path.
        """
        paths = LayerPaths(self.model)
        owners = {files.owner_of(paths, path) for path in self._pins}
        verdicts = {}
        for owner in owners:
            files.unsettle(paths[owner])
            verdicts[owner] = files.settle(paths[owner], self.made_under)
        self._renew()
        return verdicts

    def undo(self) -> None:
        """Turns back what is as it was left, and forgets it."""
        paths = LayerPaths(self.model)
        owners = [paths[one] for one in {files.owner_of(paths, path) for path in self._pins}]
        for owner in owners:
            files.unsettle(owner)
        for layer, before, after in reversed(self._changes):
            if layer.dtype_policy is after:
                _keras.replace_policy(layer, before)
        for layer in self._pins.values():
            registry.forget(layer)
        for owner in owners:  # others' pins below it stay
            files.settle(owner, self.made_under)
        self._renew()
        self._changes.clear()
        self._pins.clear()

    def _renew(self) -> None:
        """Makes the model, and what is recorded of it, follow the policies."""
        changed = [layer for layer, _, _ in self._changes]
        models = [one for _, one in LayerPaths(self.model) if isinstance(one, keras.Model)]
        for model in reversed(models):  # what a nested model returns comes first
            if _keras.refresh_symbolic_dtypes(model, changed):
                changed.append(model)
            # Traced with the old policies; Keras makes them anew.
            model.train_function = model.test_function = model.predict_function = None
