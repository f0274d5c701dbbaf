"""The scale and the counts of an optimizer, as variables that files keep."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from tf_amp_kit.errors import TrainingStuckError
from tf_amp_kit.precision.loss_scaling import rule
from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings
from tf_amp_kit.precision.loss_scaling.state import LossScaleState

__all__ = ["Ledger"]

# The count stands before the first part, the scale between them.
_STUCK: Final = (
    " steps in a row were skipped: in each of them a gradient was not finite. The loss scale is ",
    ". If that is its minimum, scaling is not the cause: look for NaN in the data, too high a "
    "learning rate, or a layer that overflows. Otherwise raise max_consecutive_skips.",
)


class Ledger:
    """Moves the scale and counts the steps.

    Args:
        settings: How the scale moves.
        scale: A float32 variable of shape `()`.
        good_steps: An int64 variable of shape `()`.
        counters: An int64 variable of shape `(rule.NUM_COUNTERS,)`.
    """

    def __init__(self, settings: ScaleSettings, scale: Any, good_steps: Any, counters: Any) -> None:
        self.settings = settings
        self._variables = rule.Moving(scale, good_steps, counters)

    def scale(self) -> Any:
        """Returns the scale to use: the variable's value, inside the bounds."""
        return rule.bounded(self.settings, self._variables.scale.value)

    def adopt(self, scale: Any, good_steps: Any) -> None:
        """Goes on from another optimizer's scale; the counts start from zero."""
        self._variables.scale.assign(rule.bounded(self.settings, tf.cast(scale, tf.float32)))
        self._variables.good_steps.assign(good_steps)
        self._variables.counters.assign(tf.zeros_like(self._variables.counters.value))

    def record(self, is_applied: Any) -> None:
        """Counts a step and moves the scale.

        Args:
            is_applied: A bool scalar: whether the step was applied, or skipped.

        Raises:
            TrainingStuckError: If too many were skipped in a row; in a graph the
                running function raises `tf.errors.InvalidArgumentError` with its
                text.
        """
        before = rule.Moving(*(variable.value for variable in self._variables))
        after = rule.advanced(self.settings, before, is_applied)
        for variable, value in zip(self._variables, after, strict=True):
            variable.assign(value)
        limit = self.settings.max_consecutive_skips
        if tf.executing_eagerly():
            if not is_applied:
                self.raise_if_stuck()
        elif limit is not None:
            count = rule.Counters(*tf.unstack(after.counters)).skipped_in_a_row
            # An error stops whatever has not run yet: state comes first. To wait for
            # more than state would keep alive what nobody asked to compute.
            operations = tf.compat.v1.get_default_graph().get_operations()
            with tf.control_dependencies([one for one in operations if one.op_def.is_stateful]):
                # The operation itself: `tf.debugging.Assert` adds a condition.
                tf.raw_ops.Assert(
                    condition=count < limit, data=[count, _STUCK[0], after.scale, _STUCK[1]]
                )

    def state(self) -> LossScaleState:
        """Reads everything from the device."""
        counters = rule.Counters(*self._variables.counters.numpy().tolist())
        return LossScaleState(
            scale=float(self.scale()),
            applied_steps=counters.applied,
            skipped_steps=counters.skipped,
            consecutive_skips=counters.skipped_in_a_row,
            last_skipped_step=counters.last_skip or None,
            growths=counters.growths,
        )

    def raise_if_stuck(self) -> None:
        """Raises TrainingStuckError if too many steps in a row were skipped."""
        limit, state = self.settings.max_consecutive_skips, self.state()
        if limit is not None and state.consecutive_skips >= limit:
            raise TrainingStuckError(
                f"{state.consecutive_skips}{_STUCK[0]}{state.scale:g}{_STUCK[1]}"
            )
