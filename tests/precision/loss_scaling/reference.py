"""The algorithm in NumPy: what an optimizer must do, from its description alone."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

# A power of two: its products are exact, so that no compiler's fused
# multiply-add can round them otherwise.
LEARNING_RATE = 2.0**-10


@dataclass
class Reference:
    """Loss scaling around plain gradient descent, in float32."""

    weights: Any
    scale: Any
    settings: dict[str, Any]
    good_steps: int = 0
    applied: int = 0
    skipped: int = 0
    in_a_row: int = 0
    last_skip: int | None = None
    growths: int = 0

    def step(self, grads: Any) -> None:
        """Takes scaled gradients."""
        rule, before = self.settings, self.scale
        if np.isfinite(grads).all():
            self.weights = self.weights - np.float32(LEARNING_RATE) * (grads / self.scale)
            self.applied, self.in_a_row, self.good_steps = self.applied + 1, 0, self.good_steps + 1
            if self.good_steps == rule["growth_interval"]:
                self._move(rule["growth_factor"])
                self.growths, self.good_steps = self.growths + bool(self.scale > before), 0
        else:
            self.skipped, self.in_a_row, self.good_steps = self.skipped + 1, self.in_a_row + 1, 0
            self.last_skip = self.applied + self.skipped
            if self.in_a_row >= rule["hysteresis"]:
                self._move(rule["backoff_factor"])

    def _move(self, factor: float) -> None:
        lowest, highest = np.float32(self.settings["min_scale"]), self.settings["max_scale"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow, to be clipped
            self.scale = np.clip(self.scale * np.float32(factor), lowest, np.float32(highest))
