"""One decision for all replicas and all workers: apply a step, or skip it.

Gradients are summed over the replicas inside the inner optimizer, so one
replica's infinity becomes everybody's. And where replicas meet to sum, all of
them must come, or those that came wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import EnvironmentUnfit

__all__ = ["decide_together"]


def decide_together(
    values: Any,
    *,
    accept: Callable[[Any], Any],
    apply: Callable[[Any], None],
    applied: Callable[[Any], None],
    skipped: Callable[[Any], None],
) -> None:
    """Runs `apply` and `applied` if every replica accepts its values, else `skipped`.

    Args:
        values: What this replica has: a structure of tensors.
        accept: Takes a replica's values, gives a bool scalar. Runs in replica
            context, as `apply` does.
        apply: Takes a replica's values.
        applied: Takes the strategy. Runs once, across replicas, as `skipped`.
        skipped: Takes the strategy.

    Raises:
        EnvironmentUnfit: If called across replicas, or under a strategy whose
            replicas could not be made to agree.
    """
    if tf.distribute.in_cross_replica_context():
        raise EnvironmentUnfit(
            "Gradients are applied on each replica. Expected a call in replica context. "
            "Received: a call across replicas. Call it inside strategy.run()."
        )
    strategy = tf.distribute.get_strategy()
    if not _keras.replicas_need_no_merge_call():
        # The condition stands across replicas: inside one replica's branch
        # there can be no meeting with the others.
        def across(strategy: Any, values: Any) -> None:
            refusals = strategy.extended.call_for_each_replica(_refusal, args=(accept, values))
            total = strategy.reduce(tf.distribute.ReduceOp.SUM, refusals, axis=None)

            def apply_on_each() -> None:
                strategy.extended.call_for_each_replica(apply, args=(values,))
                applied(strategy)

            tf.cond(total == 0, apply_on_each, lambda: skipped(strategy))

        tf.distribute.get_replica_context().merge_call(across, args=(values,))
    elif strategy.num_replicas_in_sync == 1:

        def apply_here() -> None:
            apply(values)
            applied(strategy)

        tf.cond(accept(values), apply_here, lambda: skipped(strategy))
    else:
        raise EnvironmentUnfit(
            "Replicas that reduce without a merge call cannot agree on a skip. Expected one "
            "replica, or a strategy with merge calls. "
            f"Received: {strategy.num_replicas_in_sync} replicas of {type(strategy).__name__}. "
            "Leave jit_compile off, so that they meet in merge calls."
        )


def _refusal(accept: Callable[[Any], Any], values: Any) -> Any:
    """1 for a replica that refuses its values, else 0: a number can be summed."""
    return tf.cast(tf.logical_not(accept(values)), tf.int32)
