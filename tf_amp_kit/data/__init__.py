"""Every accepted form of example data, turned into specs and batches."""

from __future__ import annotations

from tf_amp_kit.data.batches import (
    DEFAULT_BATCH_SIZE,
    Batch,
    as_data,
    batches_of,
    check_num_batches,
    count_batches,
    num_samples,
)
from tf_amp_kit.data.changes import (
    widened_specs,
    with_batch_size,
    with_fixed_shape,
    with_float_dtype,
)
from tf_amp_kit.data.specs import batch_specs, first_inputs, input_specs
from tf_amp_kit.data.tiny import tiny_batch

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "Batch",
    "as_data",
    "batch_specs",
    "batches_of",
    "check_num_batches",
    "count_batches",
    "first_inputs",
    "input_specs",
    "num_samples",
    "tiny_batch",
    "widened_specs",
    "with_batch_size",
    "with_fixed_shape",
    "with_float_dtype",
]
