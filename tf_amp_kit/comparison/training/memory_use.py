"""What memory the training of one precision takes, by the estimate."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from tf_amp_kit.comparison.memory.estimate import estimate_memory
from tf_amp_kit.comparison.training.record.parts import MemoryUse
from tf_amp_kit.data import Batch, num_samples
from tf_amp_kit.hardware.memory import free_memory_bytes
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["memory_of"]

# So much larger is the second batch that is estimated: far enough from the first for the
# line through both not to be bent by how single buffers fall into the allocator's regions.
_FAR: Final = 16


def memory_of(model: Any, batch: Batch) -> tuple[MemoryUse, str]:
    """Estimates the memory of a train step, and how large a batch would fit.

    Args:
        model: A compiled model.
        batch: What it is trained on.

    Returns:
        The estimates, and why there are none, if so.
    """
    size = num_samples(batch)
    # Of a GPU nobody knows what is free.
    free = None if tf.config.get_visible_devices("GPU") else free_memory_bytes()
    try:
        peak = _peak(model, size, batch)
        largest = (
            None if free is None else _largest(size, peak, _peak(model, _FAR * size, batch), free)
        )
    except USER_CODE_ERRORS as error:
        return MemoryUse(), f"The memory could not be estimated: {error}"
    return MemoryUse(peak, largest), ""


def _peak(model: Any, size: int, batch: Batch) -> int:
    return estimate_memory(model, size, data=tuple(batch), verbose=0).peak_bytes


def _largest(size: int, peak: int, far_peak: int, free: int) -> int:
    """Returns where the line through two peaks comes to what is free; 0 if that is nowhere."""
    bytes_per_sample = max((far_peak - peak) / ((_FAR - 1) * size), 1.0)
    return max(0, size + int((free - peak) / bytes_per_sample))
