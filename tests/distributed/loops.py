"""A custom training loop whose gradients are given, for each replica its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tests.distributed import cases

SCALE = 8.0


def distributed(strategy: tf.distribute.Strategy, make: Callable[[int], Any]) -> Any:
    """Makes a value for each replica of this process, from its number among all."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: make(context.replica_id_in_sync_group)
    )


class Loop:
    """A custom loop over given gradients: one variable of ones(3) for each."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        mode: str,
        inner: Callable[[], keras.optimizers.Optimizer] = lambda: keras.optimizers.SGD(1.0),
        num_variables: int = 1,
        initial_scale: float = SCALE,
        is_built: bool = True,
        apply: Callable[[Any, Any, Any], None] = amp.LossScaleOptimizer.apply,
        **settings: Any,
    ) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.variables = [keras.Variable(np.ones(3, "float32")) for _ in range(num_variables)]
            self.optimizer = amp.LossScaleOptimizer(
                inner(), initial_scale=initial_scale, **settings
            )
            if is_built:
                self.optimizer.build(self.variables)
        self._apply = apply
        # The gradients below are said to be those of a scaled loss.
        self.optimizer.scale_loss(0.0)
        self._run = tf.function(self._on_replicas) if mode == "graph" else self._on_replicas

    def _on_replicas(self, grads: Any) -> None:
        self.strategy.run(self._apply, args=(self.optimizer, grads, self.variables))

    def step(self, *grads_of_replicas: Sequence[Any]) -> None:
        """Makes a step; takes for each replica one gradient per variable."""

        def on_replica(context: Any) -> list[Any]:
            grads = grads_of_replicas[context.replica_id_in_sync_group]
            return [grad if _is_tensor(grad) else tf.constant(grad, tf.float32) for grad in grads]

        self._run(self.strategy.experimental_distribute_values_from_function(on_replica))

    def values(self) -> list[Any]:
        """Gives the first variable's value on each replica."""
        with self.strategy.scope():
            return cases.on_each_replica(self.variables[0])

    def all_bits(self) -> list[list[str]]:
        """Gives the bytes of the variables and of all that the inner optimizer keeps."""
        with self.strategy.scope():
            return cases.bits([*self.variables, *self.optimizer.inner_optimizer.variables])

    def report(self) -> dict[str, Any]:
        return {"weights": self.values(), **cases.state_of(self.optimizer)}


def _is_tensor(grad: Any) -> bool:
    return grad is None or tf.is_tensor(grad)


class Statistics:
    """A BatchNormalization of momentum 0.5 in a custom loop, and what it saw."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        is_protected: bool,
        mode: str,
        **settings: Any,
    ) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.layer = keras.layers.BatchNormalization(momentum=0.5)
            self.layer.build((None, 1))
            self.optimizer = amp.LossScaleOptimizer(
                keras.optimizers.SGD(0.0), initial_scale=SCALE, **settings
            )
            self.optimizer.build(self.layer.trainable_variables)
        if is_protected:
            self.optimizer.protect(self.layer)
        self._run = tf.function(self._on_replicas) if mode == "graph" else self._on_replicas

    def _on_replicas(self, batches: Any) -> None:
        self.strategy.run(self._step, args=(batches,))

    def _step(self, batch: Any) -> None:
        with tf.GradientTape() as tape:
            output = self.layer(batch, training=True)
            loss = self.optimizer.scale_loss(tf.reduce_sum(output))
        variables = self.layer.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)

    def step(self, *batches: Any) -> dict[str, Any]:
        """Makes a step, a batch for each replica; gives the statistics after it."""
        self._run(
            self.strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(
                    batches[context.replica_id_in_sync_group], tf.float32, (2, 1)
                )
            )
        )
        return self.read()

    def read(self) -> dict[str, Any]:
        """Gives the statistics on each replica of this process."""
        with self.strategy.scope():
            return {
                "mean": cases.on_each_replica(self.layer.moving_mean),
                "variance": cases.on_each_replica(self.layer.moving_variance),
            }


def embedding_step(
    strategy: tf.distribute.Strategy,
    *,
    factor: float,
    bad: Sequence[int],
    initial_scale: float = SCALE,
) -> dict[str, Any]:
    """Makes a step on an embedding of 4 rows: its gradient counts how often each is read.

    Replica 0 reads row 1 twice, any other rows 1 and 3. The loss of the bad
    replicas is multiplied by the factor.
    """
    with strategy.scope():
        embedding = keras.layers.Embedding(4, 2, embeddings_initializer="ones")
        embedding.build()
        optimizer = amp.LossScaleOptimizer(
            keras.optimizers.SGD(1.0), initial_scale=initial_scale, min_scale=1.0
        )
        optimizer.build(embedding.trainable_variables)

    @tf.function
    def run(rows: Any, factors: Any) -> None:
        def on_replica(rows: Any, factor: Any) -> None:
            with tf.GradientTape() as tape:
                loss = optimizer.scale_loss(tf.reduce_sum(embedding(rows)) * factor)
            grads = tape.gradient(loss, embedding.trainable_variables)
            assert isinstance(grads[0], tf.IndexedSlices)
            optimizer.apply(grads, embedding.trainable_variables)

        strategy.run(on_replica, args=(rows, factors))

    run(
        distributed(strategy, lambda replica: tf.constant([1, 3] if replica else [1, 1])),
        distributed(strategy, lambda replica: tf.constant(factor if replica in bad else 1.0)),
    )
    with strategy.scope():
        weights = cases.on_each_replica(embedding.embeddings)
    return {"weights": weights, **cases.state_of(optimizer)}
