"""How scale and counters follow from what a step was: applied, or skipped.

Pure functions of tensors, without a branch: computing a few scalars for nothing
costs less than a condition does in a graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from tf_amp_kit.precision.loss_scaling.settings import ScaleSettings

__all__ = ["NUM_COUNTERS", "Counters", "Moving", "advanced", "bounded"]


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


def advanced(settings: ScaleSettings, before: Moving, is_applied: Any) -> Moving:
    """Computes what moved after a step.

    Args:
        settings: How the scale moves.
        before: Scale and counts before the step.
        is_applied: A bool scalar: whether the step was applied, or skipped.

    Returns:
        Scale and counts after it.
    """
    counters = Counters(*tf.unstack(before.counters))
    applied_now = tf.cast(is_applied, tf.int64)
    skipped_now = 1 - applied_now
    applied, skipped = counters.applied + applied_now, counters.skipped + skipped_now
    good_steps = applied_now * (before.good_steps + 1)
    skipped_in_a_row = skipped_now * (counters.skipped_in_a_row + 1)

    scale = bounded(settings, before.scale)
    raises = good_steps >= settings.growth_interval
    lowers = skipped_in_a_row >= settings.hysteresis
    factor = tf.where(
        raises, settings.growth_factor, tf.where(lowers, settings.backoff_factor, 1.0)
    )
    new_scale = bounded(settings, scale * factor)
    return Moving(
        new_scale,
        tf.where(raises, tf.zeros_like(good_steps), good_steps),
        tf.stack(
            Counters(
                applied=applied,
                skipped=skipped,
                skipped_in_a_row=skipped_in_a_row,
                last_skip=tf.where(is_applied, counters.last_skip, applied + skipped),
                growths=counters.growths + tf.cast(new_scale > scale, tf.int64),
            )
        ),
    )
