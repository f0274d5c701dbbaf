"""What an `AmpMonitor` may be told."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import keras

from tf_amp_kit.errors import OptimizerError

__all__ = ["check_arguments"]


def check_arguments(every: Any, max_skip_rate: Any, optimizer: Any) -> None:
    """Refuses what a monitor cannot work with.

    Raises:
        OptimizerError: If an argument is out of its range.
    """
    if every is not None and (
        not isinstance(every, Integral) or isinstance(every, bool) or every < 1
    ):
        raise OptimizerError(
            f"Expected a whole number of batches from 1 up, or None. Received: every={every!r}."
        )
    if max_skip_rate is not None and (
        not isinstance(max_skip_rate, Real) or not 0 <= float(max_skip_rate) <= 1
    ):
        raise OptimizerError(
            f"Expected a share from 0 to 1, or None. Received: max_skip_rate={max_skip_rate!r}."
        )
    if optimizer is not None and not isinstance(optimizer, keras.optimizers.Optimizer):
        raise OptimizerError(
            "Expected a keras.optimizers.Optimizer, or None for the compiled one. "
            f"Received: optimizer={optimizer!r}."
        )
