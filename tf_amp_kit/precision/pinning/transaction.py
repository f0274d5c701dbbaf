"""Pins of one call: set together, kept in the configuration, and taken back together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.pinning import in_config, registry
from tf_amp_kit.precision.pinning.in_config import Verdict
from tf_amp_kit.precision.pinning.registry import Claim
from tf_amp_kit.tracing.paths import LayerPaths, is_below
from tf_amp_kit.tracing.state import undisturbed
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Transaction"]


@dataclass
class Transaction:
    """Layers that were turned to float32, and how to turn them back.

    Args:
        model: The model that holds the layers.
        made_under: The global policy that the model is made under.
    """

    model: Any
    made_under: Any
    _pinned: list[tuple[Any, Claim]] = field(default_factory=list)
    _changed: list[Any] = field(default_factory=list)

    def pin(self, reasons: dict[str, str], *, is_named: bool) -> None:
        """Turns layers to float32, sublayers included; `keep` and `renew` follow.

        Args:
            reasons: Why, by the paths of layers with float32 variables.
            is_named: Whether somebody named the layers.
        """
        paths = LayerPaths(self.model)
        for path, reason in reasons.items():
            in_config.drop(paths[in_config.owner_of(paths, path)])
            claim = Claim(reason, is_named)
            self._changed += registry.pin(paths, path, claim)
            self._pinned.append((paths[path], claim))

    def take_over(self) -> dict[str, str]:
        """Answers from now on for pins that nobody named, and that are there already.

        Returns:
            Their reasons by path.
        """
        found = {}
        for path, layer in LayerPaths(self.model):
            for claim in registry.claims(layer):
                if not claim.is_named and not any(claim is one for _, one in self._pinned):
                    found[path] = claim.reason
                    self._pinned.append((layer, claim))
        return found

    def keep(self, pinned: Iterable[str]) -> dict[str, Verdict]:
        """Gives pins a place in the configuration of the model.

        Args:
            pinned: The paths of the pins.

        Returns:
            The verdict of `in_config.keep` by the path of each owner.
        """
        paths = LayerPaths(self.model)
        owners = dict.fromkeys(in_config.owner_of(paths, path) for path in pinned)
        for owner in owners:
            in_config.drop(paths[owner])
        return {owner: in_config.keep(paths[owner], self.made_under) for owner in owners}

    def undo(self) -> None:
        """Takes the pins back, where no other call has pinned the same."""
        paths = LayerPaths(self.model)
        pinned = [path for layer, _ in self._pinned if (path := paths.of(layer)) is not None]
        for path in pinned:
            in_config.drop(paths[in_config.owner_of(paths, path)])
        self._changed = registry.unpin(self.model, self._pinned)
        self._pinned = []
        self._keep_others(pinned)
        self.renew()
        self._changed = []

    def _keep_others(self, pinned: Iterable[str]) -> None:
        """Keeps what other calls have pinned, now that less around it may be."""
        paths = LayerPaths(self.model)
        for owner, verdict in self.keep(pinned).items():
            if verdict.where == in_config.WHOLE:
                below = [layer for _, layer in LayerPaths(paths[owner])]
                for claim in [one for layer in below for one in registry.claims(layer)]:
                    self._changed += registry.pin(paths, owner, claim)
                self.keep([owner])

    def renew(self) -> None:
        """Makes the model, and what is recorded of it, follow the policies."""
        paths = LayerPaths(self.model)
        changed = [path for one in self._changed if (path := paths.of(one)) is not None]
        around = [one for path, one in paths if any(is_below(inner, path) for inner in changed)]
        models = [one for _, one in paths if isinstance(one, keras.Model)]
        with undisturbed(paths):
            for model in reversed(models):  # what a nested model returns comes first
                _keras.refresh_symbolic_dtypes(model, around, USER_CODE_ERRORS)
        for model in models:
            _make_functions_anew(model)


def _make_functions_anew(model: Any) -> None:
    """Replaces functions that were traced with the old policies, in a running `fit` too."""
    for name in ("train", "test", "predict"):
        if getattr(model, f"{name}_function") is not None:
            getattr(model, f"make_{name}_function")(force=True)
