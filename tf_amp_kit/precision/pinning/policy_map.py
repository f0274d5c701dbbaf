"""A dtype policy that carries pins which Keras's own policies cannot express."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import keras

from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import PinWarning
from tf_amp_kit.tables import some

__all__ = ["SublayerPins", "pins_are_carried"]

_carried: ContextVar[bool] = ContextVar("pins_are_carried", default=False)


@contextlib.contextmanager
def pins_are_carried() -> Iterator[None]:
    """Says that whoever reads or writes configurations here looks after the pins."""
    token = _carried.set(True)
    try:
        yield
    finally:
        _carried.reset(token)


@keras.saving.register_keras_serializable("tf_amp_kit")
class SublayerPins(keras.dtype_policies.DTypePolicyMap):
    """The policy of a layer or model whose constructor makes pinned layers.

    Such a constructor gives its sublayers no policy, or its model a policy whose
    name `compile` asks for. The pins are written into files and configurations,
    and a warning says that they are. `tf_amp_kit.load_model` applies them.

    Args:
        default_policy: The owner's own policy.
        policy_map: Policies by the paths of Keras, as in the base class.
        pins: Paths of the pinned layers below the owner.

    Example:

    >>> policy = SublayerPins("mixed_bfloat16", pins=["norm"])
    >>> policy.name, policy.compute_dtype, policy.pins
    ('mixed_bfloat16', 'bfloat16', ('norm',))
    """

    def __init__(
        self,
        default_policy: Any = None,
        policy_map: dict[str, Any] | None = None,
        pins: Iterable[str] = (),
    ) -> None:
        super().__init__(default_policy, policy_map)
        self.pins = tuple(pins)

    @property
    def name(self) -> str:
        """The default policy's name: `compile` reads it to add loss scaling."""
        return str(self.default_policy.name)

    def get_config(self) -> dict[str, Any]:
        """Returns the configuration, and warns that it needs this package."""
        _warn(
            f"The configuration pins {some(self.pins)} in float32, which Keras cannot express: "
            "whoever opens the file needs tf_amp_kit, and `tf_amp_kit.load_model(path)`."
        )
        return {**super().get_config(), "pins": list(self.pins)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> SublayerPins:
        """Makes the policy; whoever makes the layers has to apply the pins."""
        pins = config.get("pins", ())
        _warn(
            f"The configuration pins {some(pins)} in float32, which Keras does not apply. "
            "Load a file with `tf_amp_kit.load_model(path)`; on a clone, use `pins.apply(clone)` "
            "of what `pin_float32` returned."
        )
        rest = {key: value for key, value in config.items() if key != "pins"}
        policy = super().from_config(rest, custom_objects)
        policy.pins = tuple(pins)
        return policy  # type: ignore[no-any-return]


def _warn(message: str) -> None:
    if not _carried.get():
        warnings.warn(message, PinWarning, stacklevel=stacklevel_of_user())
