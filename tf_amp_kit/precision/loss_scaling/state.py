"""What a loss-scaling optimizer did so far, as numbers on the host."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LossScaleState"]


@dataclass(frozen=True)
class LossScaleState:
    """The loss scale and the counts of an optimizer at one moment.

    Args:
        scale: The loss scale.
        applied_steps: Steps that changed the weights.
        skipped_steps: Steps that were skipped, because a gradient was not finite.
        consecutive_skips: Steps skipped since the last applied one.
        last_skipped_step: Number of the last skipped step, counted from 1 over
            applied and skipped ones; None if there was none.
        growths: How often the scale was raised.

    Example:

    >>> print(LossScaleState(32768.0, 98, 2, 0, 40, 0))
    loss scale 32768, 98 steps applied, 2 skipped (2.0 %), the last one at step 40
    """

    scale: float
    applied_steps: int = 0
    skipped_steps: int = 0
    consecutive_skips: int = 0
    last_skipped_step: int | None = None
    growths: int = 0

    @property
    def skip_rate(self) -> float:
        """The share of skipped steps, 0 to 1; 0 before the first step."""
        steps = self.applied_steps + self.skipped_steps
        return self.skipped_steps / steps if steps else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Gives the state as plain numbers, for JSON and for reports."""
        return {**asdict(self), "skip_rate": self.skip_rate}

    def __str__(self) -> str:
        noun = "step" if self.applied_steps == 1 else "steps"
        text = (
            f"loss scale {self.scale:g}, {self.applied_steps} {noun} applied, "
            f"{self.skipped_steps} skipped"
        )
        if self.last_skipped_step is None:
            return text
        return f"{text} ({self.skip_rate:.1%}".replace("%", " %") + (
            f"), the last one at step {self.last_skipped_step}"
        )
