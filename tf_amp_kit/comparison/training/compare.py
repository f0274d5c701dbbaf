"""Training the same model in several precisions, and judging what comes of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import keras

from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.data import DEFAULT_BATCH_SIZE

__all__ = ["compare_precisions"]

_DEFAULT_PRECISIONS: Final = ("fp32", "bf16", "fp16")


def compare_precisions(
    build_fn: Callable[[], keras.Model],
    train_data: Any,
    validation_data: Any = None,
    *,
    precisions: Sequence[Any] = _DEFAULT_PRECISIONS,
    steps: int | None = None,
    epochs: int | None = None,
    seeds: int | Sequence[int] = 1,
    tolerance: float = 0.01,
    pin: bool = True,
    gradient_steps: Sequence[int] | None = None,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    time_steps: bool = True,
    jit: bool = True,
    isolate: bool = False,
    resume: str | os.PathLike[str] | None = None,
    verbose: int = 1,
) -> ComparisonReport:
    """Trains a model in several precisions from the same weights on the same batches."""
    raise NotImplementedError
