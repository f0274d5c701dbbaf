"""Losses, a metric and regularizers with one faulty line each, marked `# fault: NAME`."""

from __future__ import annotations

import keras
from keras import ops

from .faulty_layers import settled


def faulty_loss(y_true, y_pred):
    nothing = settled(y_pred, 0.0)
    return ops.mean(ops.log(nothing), axis=-1)  # fault: faulty_loss


class FaultyLoss(keras.losses.Loss):
    def call(self, y_true, y_pred):
        nothing = settled(y_pred, 0.0)
        ratio = nothing / ops.abs(nothing)  # fault: FaultyLoss
        return ops.mean(ratio, axis=-1)


class FaultyMetric(keras.metrics.Metric):
    """Keeps a NaN; loss and gradients never see it."""

    def __init__(self, name: str = "faulty"):
        super().__init__(name=name)
        self.total = self.add_variable((), initializer="zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        below = ops.max(settled(y_pred, -1.0))
        root = ops.sqrt(below)  # fault: FaultyMetric
        self.total.assign(self.total + root)

    def result(self):
        return self.total + 0.0


class FaultyRegularizer(keras.regularizers.Regularizer):
    """For weights."""

    def __call__(self, x):
        nothing = settled(x, 0.0)
        logarithm = ops.log(nothing)  # fault: FaultyRegularizer
        return ops.sum(logarithm)


class FaultyActivityRegularizer(keras.regularizers.Regularizer):
    def __call__(self, x):
        nothing = settled(x, 0.0)
        ratio = ops.reciprocal(nothing)  # fault: FaultyActivityRegularizer
        return ops.sum(ratio)
