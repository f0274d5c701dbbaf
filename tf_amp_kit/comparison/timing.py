"""How long something takes, as quartiles of interleaved runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Quartiles", "StepTimes"]


@dataclass(frozen=True)
class Quartiles:
    """The quartiles of some durations, in seconds."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class StepTimes:
    """How long a model runs in float32, in half precision, and with the pins of a plan.

    Attributes:
        what: What was timed: `"forward and backward pass"`, or `"forward pass"` for a
            model without a loss.
        num_rounds: How many rounds of interleaved runs were timed.
        float32: The seconds of one run in float32.
        half: Those with every layer in half precision.
        planned: Those with the plan's pins; the same as `half` if there are none.
    """

    what: str
    num_rounds: int
    float32: Quartiles
    half: Quartiles
    planned: Quartiles
