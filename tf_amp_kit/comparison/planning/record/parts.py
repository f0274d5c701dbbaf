"""What a plan consists of: the layers with their effects, and what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from tf_amp_kit.comparison.stored import without_numpy

__all__ = [
    "METRICS",
    "BatchDifference",
    "CurvePoint",
    "Errors",
    "NumberRecord",
    "UnitEffect",
]


#: What an error may be of.
METRICS: Final = ("output", "loss", "gradient")


class NumberRecord:
    """A record of numbers, equal to another one also where both have NaN.

    Example:

    >>> Errors(0.5, 0.0, 0.0, math.nan) == Errors(0.5, 0.0, 0.0, float("nan"))
    True
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _comparable(self) == _comparable(other)

    def __hash__(self) -> int:
        return hash(_comparable(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for strict JSON; None for what is not finite."""
        values = {name: without_numpy(getattr(self, name)) for name in _names(self)}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in values.items()
        }


def _names(record: Any) -> Iterator[str]:
    return (one.name for one in fields(record))


def _comparable(record: Any) -> tuple[Any, ...]:
    values = (getattr(record, name) for name in _names(record))
    return tuple("NaN" if value != value else value for value in values)


@dataclass(frozen=True, eq=False)
class UnitEffect(NumberRecord):
    """What one unit, a layer or a composite, does to a model in half precision.

    Attributes:
        path: Its path.
        layer_class: The class name.
        score: The error that is predicted if this unit alone runs in half precision, in
            the units of the plan's metric; infinite if it makes NaN or Inf.
        largest: The largest finite magnitude that it takes or returns in float32.
        reason: Why it would be pinned: `"raises"`, `"non-finite"`, `"range"` (within a
            factor of 8 of the format's largest number) or `"error"`.
        is_pinned: Whether the plan pins it.
        predicted_without: For a pinned unit: the plan's error that is predicted if this
            one is left in half; None otherwise.
        measured_without: The same, measured; None if it was not.
    """

    path: str
    layer_class: str
    score: float
    largest: float
    reason: str
    is_pinned: bool
    predicted_without: float | None = None
    measured_without: float | None = None


@dataclass(frozen=True, eq=False)
class Errors(NumberRecord):
    """How far a model in half precision, some layers pinned, is from float32.

    Each is infinite if half precision makes NaN or Inf where float32 does not.

    Attributes:
        output: The norm of the outputs' difference over the norm of the float32 ones;
            of several outputs the root of the summed squares.
        loss: The change of the loss over its magnitude in float32; None without a loss.
        gradient: The norm of the weight gradients' difference over the norm of the
            float32 ones; None without a loss.
        gradient_cosine: The cosine between both, -1 to 1; None without a loss, NaN if one
            of them is zero or not finite.
    """

    output: float
    loss: float | None = None
    gradient: float | None = None
    gradient_cosine: float | None = None

    def in_metric(self, metric: str) -> float:
        """Returns the error in one of `METRICS`; infinite if it was not measured."""
        error: float | None = getattr(self, metric)
        return math.inf if error is None else error


@dataclass(frozen=True, eq=False)
class BatchDifference(NumberRecord):
    """How much two batches differ in float32: what an error is to be compared with.

    Attributes:
        loss: The difference of their losses over the first one's magnitude.
        gradient: The norm of the gradients' difference over the norm of the first.
        gradient_cosine: The cosine between both gradients, -1 to 1.
    """

    loss: float
    gradient: float
    gradient_cosine: float


@dataclass(frozen=True, eq=False)
class CurvePoint(NumberRecord):
    """The error with the first units of the ranking pinned.

    Attributes:
        num_pins: How many units are pinned.
        predicted: The predicted error.
        measured: The measured error; None if it was not run.
    """

    num_pins: int
    predicted: float
    measured: float | None = None
