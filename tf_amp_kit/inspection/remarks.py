"""What several functions that run a train step have to say about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

__all__ = ["about_train_step"]


def about_train_step(model: Any) -> Iterator[str]:
    """Says that a model's own train step was not called, if it has one.

    Args:
        model: A Keras model.
    """
    kind = type(model)
    if kind.train_step is not keras.Model.train_step:
        yield f"{kind.__name__}.train_step was not called: this is the step of `fit`."
