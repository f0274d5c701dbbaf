"""What memory the training of one precision takes, by the estimate."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_amp_kit.comparison.memory.estimate import estimate_memory, largest_batch_size
from tf_amp_kit.comparison.training.record.parts import MemoryUse
from tf_amp_kit.data import Batch, num_samples
from tf_amp_kit.hardware.memory import free_memory_bytes
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["memory_of"]


def memory_of(model: Any, batch: Batch) -> tuple[MemoryUse, str]:
    """Estimates the memory of a train step, and how large a batch would fit.

    Args:
        model: A compiled model.
        batch: What it is trained on.

    Returns:
        The estimates, and why there are none, if so.
    """
    data = tuple(batch)
    try:
        estimate = estimate_memory(model, num_samples(batch), data=data, verbose=0)
        # Of a GPU nobody knows what is free.
        free = None if tf.config.get_visible_devices("GPU") else free_memory_bytes()
        largest = None if free is None else largest_batch_size(model, free, data=data)
    except USER_CODE_ERRORS as error:
        return MemoryUse(), f"The memory could not be estimated: {error}"
    return MemoryUse(estimate.peak_bytes, largest), ""
