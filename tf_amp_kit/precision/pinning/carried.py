"""Applying the pins that a configuration brought along."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.precision.pinning.applying import Outcome, set_pins
from tf_amp_kit.precision.pinning.policy_map import SublayerPins
from tf_amp_kit.tracing.paths import LayerPaths, is_below, join

__all__ = ["apply_carried"]

_REASON = "pinned in its configuration"


def apply_carried(model: Any) -> Outcome | None:
    """Pins what the policies of a new model say of their sublayers.

    Args:
        model: A model made from a configuration, of a file or of another model.

    Returns:
        What came of it, or None if no policy carries pins.
    """
    owners: dict[str, SublayerPins] = {}
    for path, layer in LayerPaths(model):
        policy = layer.dtype_policy
        if not isinstance(policy, SublayerPins):
            continue
        # Sublayers have the policy as well where their owner passes it on.
        if not any(is_below(path, owner) for owner in owners):
            owners[path] = policy
        _keras.replace_policy(layer, _without_pins(policy))
    if not owners:
        return None
    return set_pins(
        model,
        {
            join(owner, pin) if pin else owner: _REASON
            for owner, policy in owners.items()
            for pin in policy.pins
        },
        is_named=False,
        look=False,
    )


def _without_pins(policy: SublayerPins) -> Any:
    if not len(policy):
        return policy.default_policy
    return keras.dtype_policies.DTypePolicyMap(policy.default_policy, dict(policy))
