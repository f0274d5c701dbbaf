"""How scale and counters follow from what a step was: applied, or skipped.

Pure functions of tensors, without a branch: scalars are cheaper to compute than
a condition is in a graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings

__all__ = ["NUM_COUNTERS", "Counters", "Moving", "after_applied", "after_skipped", "bounded"]


class Counters(NamedTuple):
    """The counts that an optimizer keeps, as scalars of dtype int64.

    Attributes:
        applied: Steps that changed the weights.
        skipped: Steps that changed nothing but the scale.
        skipped_in_a_row: Skipped steps since the last applied one.
        last_skip: Number of the last skipped step, counted from 1; 0 for none.
        growths: How often the scale was raised.
    """

    applied: Any
    skipped: Any
    skipped_in_a_row: Any
    last_skip: Any
    growths: Any


NUM_COUNTERS = len(Counters._fields)


class Moving(NamedTuple):
    """What moves from step to step.

    Attributes:
        scale: The loss scale, a float32 scalar.
        good_steps: Applied steps since the scale was last moved, an int64 scalar.
        counters: A `Counters` as one int64 tensor of shape `(NUM_COUNTERS,)`.
    """

    scale: Any
    good_steps: Any
    counters: Any


def bounded(settings: ScaleSettings, scale: Any) -> Any:
    """Brings a scale into its bounds: one of zero, infinity or NaN as well.

    A file of another optimizer may hold any of them.

    Args:
        settings: The settings with the bounds.
        scale: A float32 scalar.

    Returns:
        A float32 scalar that is safe to divide by.
    """
    lowest, highest = (tf.constant(bound, tf.float32) for bound in settings.bounds)
    # NaN fails every comparison, so it ends at the lower bound.
    return tf.where(scale >= lowest, tf.minimum(scale, highest), lowest)


def after_applied(settings: ScaleSettings, moving: Moving) -> Moving:
    """Counts an applied step, and raises the scale after enough of them."""
    counters = Counters(*tf.unstack(moving.counters))
    scale = bounded(settings, moving.scale)
    good_steps = moving.good_steps + 1
    is_due = good_steps >= settings.growth_interval
    raised = bounded(settings, scale * settings.growth_factor) if settings.is_dynamic else scale
    new_scale = tf.where(is_due, raised, scale)
    counters = counters._replace(
        applied=counters.applied + 1,
        skipped_in_a_row=tf.zeros_like(counters.skipped_in_a_row),
        growths=counters.growths + tf.cast(new_scale > scale, tf.int64),
    )
    return Moving(
        new_scale, tf.where(is_due, tf.zeros_like(good_steps), good_steps), tf.stack(counters)
    )


def after_skipped(settings: ScaleSettings, moving: Moving) -> Moving:
    """Counts a skipped step, and lowers the scale after enough in a row."""
    counters = Counters(*tf.unstack(moving.counters))
    scale = bounded(settings, moving.scale)
    skipped_in_a_row = counters.skipped_in_a_row + 1
    lowered = bounded(settings, scale * settings.backoff_factor) if settings.is_dynamic else scale
    skipped = counters.skipped + 1
    counters = counters._replace(
        skipped=skipped,
        skipped_in_a_row=skipped_in_a_row,
        last_skip=counters.applied + skipped,
    )
    return Moving(
        tf.where(skipped_in_a_row >= settings.hysteresis, lowered, scale),
        tf.zeros_like(moving.good_steps),
        tf.stack(counters),
    )
