"""What tells a model and its training from others, in a file."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from tf_amp_kit.comparison.training.candidates import Candidate

__all__ = ["of_candidate", "of_model"]


def of_model(model: Any) -> dict[str, Any]:
    """Describes a compiled model that nobody has trained yet.

    Args:
        model: A built and compiled model.

    Returns:
        Its weights, and what it was compiled with, as far as that has a name or a config.
    """
    weights = model.get_weights()
    content = b"".join(one.tobytes() for one in weights)
    return {
        "weight_shapes": [list(one.shape) for one in weights],
        "first_weights": zlib.crc32(content),
        "optimizer": _told(model.optimizer),
        "loss": _told(model.loss),
    }


def of_candidate(candidate: Candidate) -> str:
    """Describes a precision: two of the same name may pin other layers."""
    state = candidate.state
    pins = "" if state.pins is None else f", {sorted(state.pins.paths)} in float32"
    return f"{state.precision} {state.level}{pins}"


def _told(value: Any) -> Any:
    """Returns what is the same in another process: names and configs, no addresses."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _told(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_told(one) for one in value]
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if hasattr(value, "get_config") and not isinstance(value, type):
        # Automatic names count builds.
        config = {key: one for key, one in value.get_config().items() if key != "name"}
        return [name, _told(config)]
    return name
