"""Getting hold of the batches of an execution of a model's train function.

Callbacks see no data, and a step compiled by XLA cannot hand any out. So one execution
is fed by hand, batch by batch, to the same train function: no graph changes, and what was
fed is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

__all__ = ["feed_by_hand", "of_all_replicas"]

# Takes the train function, what it is to be called with, the batch and the number of its step.
Run = Callable[[Callable[[Any], Any], Any, Any, int], Any]


def feed_by_hand(model: Any, first_step: int, run: Run) -> None:
    """Replaces a model's train function for one call, in which each batch comes by itself.

    Belongs into a callback behind all others: then nothing comes between its hook and the
    step.

    Args:
        model: A model in `fit`.
        first_step: The number of the first batch, from 0.
        run: Called for each batch instead of the train function, which it has to call.
    """
    function, num_steps = model.train_function, model.steps_per_execution

    def by_hand(iterator: Any) -> Any:
        # First of all: a step may raise.
        if model.train_function is by_hand:
            model.train_function = function
        outputs, is_fed = None, False
        batches = itertools.islice(iterator, num_steps)
        for step, batch in enumerate(batches, start=first_step):
            outputs, is_fed = run(function, _alone(batch, iterator), batch, step), True
        # What is exhausted at once says so in Keras's own way.
        return outputs if is_fed else function(iterator)

    model.train_function = by_hand


def _alone(batch: Any, iterator: Any) -> Iterable[Any]:
    """Makes what a train function takes, with nothing in it but one batch."""
    if not isinstance(iterator, tf.data.Iterator):
        # Of several replicas: Keras goes through anything else in Python.
        return [batch]
    alone = tf.data.experimental.to_variant(tf.data.Dataset.from_tensors(batch))
    # With the batch's own shapes, the first one would be traced for no other size.
    dataset = tf.data.experimental.from_variant(alone, iterator.element_spec)
    one: Iterator[Any] = iter(dataset.with_options(_plain_options()))
    return one


def _plain_options() -> tf.data.Options:
    """Options without what pays off for long data sets, and takes longer than one batch."""
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_optimization.inject_prefetch = False
    return options


def of_all_replicas(batch: Any, strategy: Any) -> Any:
    """Joins the parts of all replicas: which of them was bad, no counter tells."""

    def joined(value: Any) -> Any:
        parts = strategy.experimental_local_results(value)
        if isinstance(parts[0], tf.experimental.Optional):
            # So Keras writes None in a data set.
            return None
        if len(parts) == 1 or parts[0].shape.rank == 0:
            return parts[0]
        if isinstance(parts[0], tf.SparseTensor):
            return tf.sparse.concat(axis=0, sp_inputs=list(parts))
        return tf.concat(parts, axis=0)

    whole = tf.nest.map_structure(joined, batch)
    return whole if isinstance(whole, tuple) else (whole,)
