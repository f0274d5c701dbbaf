"""What was read of an optimizer's loss scale, and what a row of readings says."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.errors import OptimizerError
from tf_amp_kit.precision.loss_scaling.optimizer import LossScaleOptimizer
from tf_amp_kit.precision.loss_scaling.state import LossScaleState

__all__ = ["Interval", "ScaleReader", "Trend", "checked_loss_scale"]

# A scale that starts too high is skipped down within a reading or two.
_READS_IN_A_ROW: Final = 3

_LOOK_FOR: Final = (
    "Look for NaN or Inf in the data, too high a learning rate, or a layer that overflows in "
    "float16."
)


@dataclass(frozen=True)
class Interval:
    """What happened between two readings.

    Args:
        before: The earlier reading.
        after: The later one.

    Example:

    >>> interval = Interval(LossScaleState(64.0, 10, 2), LossScaleState(32.0, 13, 3))
    >>> interval.steps, interval.skipped, interval.skip_rate
    (4, 1, 0.25)
    """

    before: LossScaleState
    after: LossScaleState

    @property
    def steps(self) -> int:
        """Steps that were applied or skipped; 0 where nobody counts them."""
        return self.applied + self.skipped

    @property
    def applied(self) -> int:
        """Steps that changed the weights."""
        # Counts go back where somebody loads an earlier state between readings.
        return max(0, self.after.applied_steps - self.before.applied_steps)

    @property
    def skipped(self) -> int:
        """Steps that were skipped."""
        return max(0, self.after.skipped_steps - self.before.skipped_steps)

    @property
    def skip_rate(self) -> float:
        """The share of skipped steps, 0 to 1; 0 if there was no step."""
        return self.skipped / self.steps if self.steps else 0.0


class ScaleReader:
    """Reads the loss scale and the counts of an optimizer of any kind.

    Args:
        optimizer: A `keras.optimizers.Optimizer`.

    Example:

    >>> print(ScaleReader(keras.optimizers.SGD()).read())
    loss scale 1, 0 steps applied, 0 skipped
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.counts_steps = isinstance(optimizer, LossScaleOptimizer)
        self.may_skip = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)

    @property
    def min_scale(self) -> float | None:
        """The scale below which a dynamic one never goes; None if there is none."""
        if not self.counts_steps:
            return None
        settings = self.optimizer.ledger.settings
        return float(settings.min_scale) if settings.is_dynamic else None

    def read(self) -> LossScaleState:
        """Reads host values; waits for the device where the optimizer may skip."""
        optimizer = self.optimizer
        if self.counts_steps:
            state: LossScaleState = optimizer.loss_scale_state()
            return state
        if self.may_skip:
            # Keras's own has no variables, and one scale, before it is built.
            if not optimizer.built:
                return LossScaleState(float(optimizer.initial_scale))
            # Through TensorFlow: a variable of several replicas is no number to Keras.
            return LossScaleState(float(tf.convert_to_tensor(optimizer.dynamic_scale.value)))
        return LossScaleState(float(optimizer.loss_scale_factor or 1.0))

    def logs_of(self, interval: Interval) -> dict[str, float]:
        """Gives the log values of an interval; NaN for what nobody counts."""
        is_unknown = self.may_skip and not self.counts_steps
        return {
            "loss_scale": interval.after.scale,
            "skipped_steps": math.nan if is_unknown else interval.skipped,
            "skip_rate": math.nan if is_unknown else interval.skip_rate,
        }


def checked_loss_scale(model: Any, loss_scale: float | None) -> float:
    """Returns the given loss scale, or the one that a model's optimizer is at.

    Args:
        model: A Keras model, compiled or not.
        loss_scale: A scale, or None for the optimizer's; 1 where none scales.

    Raises:
        OptimizerError: If it is not a positive finite number.

    Example:

    >>> checked_loss_scale(keras.Sequential(), None)
    1.0
    """
    if loss_scale is None:
        optimizer = getattr(model, "optimizer", None)
        scale: Any = 1.0 if optimizer is None else ScaleReader(optimizer).read().scale
        source = "dynamic_scale"
    else:
        scale, source = loss_scale, "loss_scale"
    is_number = isinstance(scale, Real) and not isinstance(scale, bool)
    if not is_number or not math.isfinite(scale) or scale <= 0:
        raise OptimizerError(
            "Expected a positive finite loss scale; None takes the optimizer's. "
            f"Received: {source}={scale!r}."
        )
    return float(scale)


class Trend:
    """Judges the last readings: too many skips, or a scale that cannot go lower.

    Args:
        name: What the scale is called in messages.
        max_skip_rate: The share of skipped steps to stay below; None for any.
        min_scale: The scale's lower bound; None if there is none.

    Example:

    >>> trend = Trend("loss_scale", max_skip_rate=0.5, min_scale=None)
    >>> reads = [LossScaleState(64.0, 0, skipped) for skipped in (0, 1, 2, 3)]
    >>> [list(trend.add(Interval(*pair))) != [] for pair in zip(reads, reads[1:])]
    [False, False, True]
    """

    def __init__(self, name: str, *, max_skip_rate: float | None, min_scale: float | None) -> None:
        self._name = name
        self._max_skip_rate = math.inf if max_skip_rate is None else max_skip_rate
        self._min_scale = -math.inf if min_scale is None else min_scale
        self._last: deque[Interval] = deque(maxlen=_READS_IN_A_ROW)
        self._steps = self._skipped = 0
        self._told: set[str] = set()

    def add(self, interval: Interval) -> Iterator[str]:
        """Takes in what happened since the last reading.

        Args:
            interval: From the last reading to this one; without steps it counts
                for nothing.

        Yields:
            What to warn of, each cause once.
        """
        if not interval.steps:
            return
        self._last.append(interval)
        self._steps += interval.steps
        self._skipped += interval.skipped
        if len(self._last) < _READS_IN_A_ROW:
            return
        for cause, message in (("rate", self._rate()), ("minimum", self._minimum())):
            if message and cause not in self._told:
                self._told.add(cause)
                yield message

    def _rate(self) -> str:
        if any(one.skip_rate <= self._max_skip_rate for one in self._last):
            return ""
        steps = sum(one.steps for one in self._last)
        skipped = sum(one.skipped for one in self._last)
        return (
            f"The skip rate stayed above {self._max_skip_rate:g} at {_READS_IN_A_ROW} readings of "
            f"{self._name} in a row: {skipped} of {steps} steps were skipped "
            f"({100 * skipped / steps:.1f} %), because a gradient was not finite. {_LOOK_FOR}"
        )

    def _minimum(self) -> str:
        # A scale that began at its minimum, and needed no skip, is no fault.
        if not self._skipped or any(one.after.scale > self._min_scale for one in self._last):
            return ""
        return (
            f"{self._name} sat at its minimum of {self._min_scale:g} at {_READS_IN_A_ROW} readings "
            f"in a row; {self._skipped} of {self._steps} steps were skipped since training began. "
            f"{_LOOK_FOR}"
        )
