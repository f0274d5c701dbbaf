"""What of a model a skipped step must not touch, bound to the optimizer that skips."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit.errors import ModelError
from tf_amp_kit.inspection.readings import ScaleReader

__all__ = ["StateGuard"]


class StateGuard:
    """Keeps the state of a model in training protected.

    Args:
        model: A compiled model.
        reader: The reader of the optimizer that is to protect it; one that cannot
            protects nothing.
    """

    def __init__(self, model: Any, reader: ScaleReader) -> None:
        self._model = model
        self._reader = reader

    def protect(self) -> bool:
        """Protects what is built by now, with its present values.

        Returns:
            Whether that was more than before.
        """
        if not self._reader.counts_steps:
            return False
        optimizer, mean = self._reader.optimizer, self.loss_mean()
        running = mean.variables if mean else []
        try:
            protection = optimizer.protect(self._model, running)
        except ModelError:
            # Nothing of it is built: a subclassed model is, by its first batch.
            protection = optimizer.protect(running)
        return bool(protection.num_new)

    def loss_mean(self) -> Any:
        """Finds the mean behind the logged loss, where a skipped step can be taken out of it.

        Keras's own train step updates it before it calls the optimizer; of
        another train step nobody knows.

        Returns:
            A `keras.metrics.Mean`, or None.
        """
        model = self._model
        step = getattr(model.train_step, "__func__", None)
        if step is not keras.Model.train_step or self._reader.optimizer is not model.optimizer:
            return None
        for first in model.metrics[:1]:
            if type(first) is keras.metrics.Mean and first.name == "loss":
                return first
        return None

    def spoilt(self) -> list[str]:
        """Lists the paths of variables outside of training that hold NaN or Inf."""
        return [
            variable.path
            for variable in self._model.non_trainable_variables
            if not keras.ops.all(keras.ops.isfinite(variable))
        ]
