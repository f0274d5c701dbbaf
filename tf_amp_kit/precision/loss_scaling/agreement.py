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

__all__ = ["check_same_strategy", "decide_together"]


def decide_together(
    values: Any,
    *,
    accept: Callable[[Any], Any],
    apply: Callable[[Any], None],
    settle: Callable[[Any, Any], None],
) -> None:
    """Runs `apply` if every replica accepts its values, and then `settle` in any case.

    The branch that skips is left empty, and the other one does nothing but
    apply: compiled by XLA, a condition whose branches write more than that
    costs several times as much.

    Args:
        values: What this replica has: a structure of tensors.
        accept: Takes a replica's values, gives a bool scalar. Runs in replica
            context, as `apply` does.
        apply: Takes a replica's values.
        settle: Takes the strategy and the decision, a bool scalar. Runs once
            for all replicas, in cross-replica context.

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
            each = strategy.extended.call_for_each_replica
            refusals = each(_refusal, args=(accept, values))
            accepted = strategy.reduce(tf.distribute.ReduceOp.SUM, refusals, axis=None) == 0
            tf.cond(accepted, lambda: each(apply, args=(values,)), _do_nothing)
            settle(strategy, accepted)

        tf.distribute.get_replica_context().merge_call(across, args=(values,))
    elif strategy.num_replicas_in_sync == 1:
        accepted = accept(values)
        tf.cond(accepted, lambda: apply(values), _do_nothing)
        settle(strategy, accepted)
    else:
        raise EnvironmentUnfit(
            "Replicas that reduce without a merge call cannot agree on a skip. Expected one "
            "replica, or a strategy with merge calls. "
            f"Received: {strategy.num_replicas_in_sync} replicas of {type(strategy).__name__}. "
            "Leave jit_compile off, so that they meet in merge calls."
        )


def check_same_strategy(own: Any, used: Any, name: str) -> None:
    """Refuses an optimizer that was made outside of the strategy that it is used under.

    Its variables exist once then, and not on each replica.

    Args:
        own: The strategy that the optimizer was made under.
        used: The one that it is used under.
        name: The optimizer's name.

    Raises:
        EnvironmentUnfit: If they are two.
    """
    if own is not used:
        raise EnvironmentUnfit(
            "An optimizer is used under another strategy than it was made under. Expected both "
            f"under {type(used).__name__}. Received: {name!r}, made under "
            f"{type(own).__name__.lstrip('_')}. Make it inside strategy.scope()."
        )


def _do_nothing() -> None:
    pass


def _refusal(accept: Callable[[Any], Any], values: Any) -> Any:
    """1 for a replica that refuses its values, else 0; float32, which every device sums."""
    return tf.cast(tf.logical_not(accept(values)), tf.float32)
