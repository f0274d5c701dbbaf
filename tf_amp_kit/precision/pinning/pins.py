"""The record of pins: what was kept in float32 and why, to undo, save and apply."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import keras

from tf_amp_kit.errors import PinError
from tf_amp_kit.precision.pinning.applying import Outcome, Pin, set_pins
from tf_amp_kit.precision.pinning.transaction import Transaction
from tf_amp_kit.tables import render_table, wrapped
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["PLAN_FORMAT", "HoldsPins", "Pin", "Pins"]

_FORMAT: Final = "tf_amp_kit pins"
_VERSION: Final = 1
#: A precision plan's file holds its pins in the same form, and more: format and version.
PLAN_FORMAT: Final = ("tf_amp_kit plan", 1)
_READABLE: Final = ((_FORMAT, _VERSION), PLAN_FORMAT)


class HoldsPins(Protocol):
    """What can stand for its pins wherever pins are taken: a precision plan."""

    @property
    def pins(self) -> Pins:
        """The pins."""


@dataclass(frozen=True)
class Pins:
    """Layers that are kept in float32. Printing it tells which, and why.

    Attributes:
        model_name: The name of the model that was pinned.
        pins: The pinned layers.
        remarks: What was left in half, and what to know, in sentences.

    Example:

    >>> print(Pins("net", (Pin("head", "Dense", "named"),)))
    Pinned in float32: 1 layer of 'net'
    <BLANKLINE>
    Layer  Class  Why    In a file
    --------------------------------
    head   Dense  named  plain Keras
    """

    model_name: str
    pins: tuple[Pin, ...]
    remarks: tuple[str, ...] = ()
    _transaction: Transaction | None = field(default=None, repr=False, compare=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the pinned layers."""
        return tuple(pin.path for pin in self.pins)

    def undo(self) -> None:
        """Gives the layers back the policies that they had, in memory and in files.

        A layer that got another policy since keeps that one. A second time
        nothing happens.

        Raises:
            PinError: If these pins were loaded, and are on no model.
        """
        if self._transaction is None:
            raise PinError(
                "These pins are on no model. Expected pins that `pin_float32` or `apply` "
                f"returned. Received: pins of {self.model_name!r}, loaded from a file."
            )
        self._transaction.undo()

    def apply(self, model: keras.Model, *, inputs: Any = None) -> Pins:
        """Pins the same layers in another model: a clone, a second build, a loaded one.

        Args:
            model: A Keras model with the same paths.
            inputs: Example inputs, only for a model that does not know its own.

        Returns:
            The pins of that model.

        Raises:
            PinError: If a path is missing there, or belongs to another class; or
                as in `pin_float32`.
        """
        known = dict(LayerPaths(model))
        strange = [
            f"{pin.path!r} ({pin.layer_class})"
            for pin in self.pins
            if pin.path in known and type(known[pin.path]).__name__ != pin.layer_class
        ]
        if strange:
            raise PinError(
                f"The pins are of another model. Expected layers {', '.join(strange[:3])}"
                f"{f' and {len(strange) - 3} more' if len(strange) > 3 else ''}. "
                f"Received: {model.name!r}, which has layers of other classes there."
            )
        reasons = {pin.path: pin.reason for pin in self.pins}
        return Pins.of(model, set_pins(model, reasons, inputs=inputs))

    @classmethod
    def on(cls, model: keras.Model) -> Pins:
        """Returns the pins that nobody named and that a model has by now.

        They come from its level, from a file, or from `amp_scope(on_conflict="float32")`.

        Args:
            model: A Keras model.

        Raises:
            ModelError: If it is not a Keras 3 model.

        Example:

        >>> dense = keras.layers.Dense(2, activation="softmax", dtype="mixed_bfloat16")
        >>> Pins.on(keras.Sequential([keras.Input((3,)), dense])).paths
        ()
        """
        check_keras_model(model)
        return cls.of(model, set_pins(model, {}, is_named=False, look=False))

    @classmethod
    def of(cls, model: keras.Model, outcome: Outcome) -> Pins:
        """Makes the record of what came of setting pins."""
        return cls(model.name, *outcome)

    @classmethod
    def parse(cls, pins: Any) -> Pins | None:
        """Takes pins, a plan that holds some, the file of either, or None.

        Args:
            pins: As above.

        Raises:
            PinError: If it is something else, or the file holds no pins.
            OSError: If the file cannot be read.
        """
        if pins is None or isinstance(pins, Pins):
            return pins
        if isinstance(pins, str | os.PathLike):
            return cls.load(pins)
        # The record of a plan belongs to a package above this one.
        held = getattr(pins, "pins", None)
        if isinstance(held, Pins):
            return held
        raise PinError(
            "Unknown pins. Expected what `pin_float32` returned, a precision plan, or the path of "
            f"a file that the `save` of one wrote. Received: pins={pins!r}."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the pins as JSON, keyed by layer path.

        Args:
            path: Where to; an existing file is replaced.
        """
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "model_name": self.model_name,
            "pins": self.by_path(),
        }
        Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def by_path(self) -> dict[str, dict[str, str]]:
        """Returns what a file has of the pins."""
        return {
            pin.path: {"layer_class": pin.layer_class, "reason": pin.reason} for pin in self.pins
        }

    def detached(self) -> Pins:
        """Returns the pins as they are on no model: with no word of its files, nothing to undo."""
        pins = tuple(replace(pin, in_files="") for pin in self.pins)
        return Pins(self.model_name, pins, self.remarks)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pins:
        """Reads what `save` wrote, or the pins of a precision plan that its `save` wrote.

        Args:
            path: The file.

        Returns:
            Pins that are on no model yet: `apply` them.

        Raises:
            PinError: If the file holds something else.
            OSError: If it cannot be read.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if (content["format"], content["version"]) not in _READABLE:
                raise ValueError
            pins = tuple(
                Pin(path_in, str(pin["layer_class"]), str(pin["reason"]), in_files="")
                for path_in, pin in content["pins"].items()
            )
            return cls(str(content["model_name"]), pins)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise PinError(
                "The file holds no pins. Expected JSON that `Pins.save` wrote, version "
                f"{_VERSION}, or `PrecisionPlan.save`, version {PLAN_FORMAT[1]}. "
                f"Received: {str(path)!r}."
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as dictionaries, lists and strings."""
        return {
            "model_name": self.model_name,
            "pins": [pin.to_dict() for pin in self.pins],
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        count = f"{len(self.pins)} layer{'' if len(self.pins) == 1 else 's'}"
        parts = [f"Pinned in float32: {count} of {self.model_name!r}"]
        if self.pins:
            rows = [
                (pin.path or "(model)", pin.layer_class, pin.reason, pin.in_files)
                for pin in self.pins
            ]
            parts.append(render_table(("Layer", "Class", "Why", "In a file"), rows))
        return "\n\n".join((*parts, *map(wrapped, self.remarks)))
