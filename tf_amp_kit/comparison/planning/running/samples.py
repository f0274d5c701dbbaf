"""The batches that a plan is made on, and those that it is checked on."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.data import Batch, as_data, batch_specs, batches_of, num_samples, widened_specs
from tf_amp_kit.errors import InputsError
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS

__all__ = ["common_specs", "nudged", "split_batches"]

# So many samples, in whole batches, are searched on, and as many held out.
_NUM_SAMPLES: Final = 64


def split_batches(
    data: Any, validation: Any, batch_size: int | None
) -> tuple[list[Batch], list[Batch]]:
    """Takes batches to search on, and others to check on, as far as there are any."""
    batches = batches_of(data, batch_size)
    search = list(_enough(batches))
    if validation is not None:
        return search, list(_enough(batches_of(_as_validation(validation), batch_size)))
    held_out = list(_enough(batches))
    if not held_out and len(search) > 1:
        middle = len(search) // 2
        return search[:-middle], search[-middle:]
    return search, held_out


def common_specs(model: Any, data: Any, batches: Sequence[Batch]) -> Any:
    """Describes the data so that all batches fit, those of a validation dataset too.

    Raises:
        InputsError: If they have different forms.
    """
    specs = batch_specs(data)
    parts = [_named_parts(one) for one in (specs, *batches)]
    other = next((one for one in parts if one != parts[0]), None)
    if other is not None:
        raise InputsError(
            "The validation data have another form than the data. Expected "
            f"{', '.join(parts[0])}. Received: {', '.join(other)}."
        )
    wider = functools.reduce(widened_specs, batches, specs)
    if wider != specs:
        # Open dimensions would be refused by TensorFlow alone, in the middle of a run.
        trace_step(model, tuple(batches[-1]), in_float32=True, until=OUTPUTS, training=False)
    return wider


def nudged(batch: Batch) -> Batch:
    """Moves each float input up or down by what float32 rounds."""

    def nudge(value: Any) -> Any:
        if not isinstance(value, tf.Tensor) or value.dtype != tf.float32:
            return value
        signs = tf.cast(tf.range(tf.size(value)) % 2 * 2 - 1, value.dtype)
        return value * (1 + 2.0**-23 * tf.reshape(signs, tf.shape(value)))

    return batch._replace(x=tf.nest.map_structure(nudge, batch.x))


def _as_validation(validation: Any) -> Any:
    if isinstance(validation, list | tuple) and not validation:
        raise InputsError(f"The validation data hold nothing. Received: validation={validation!r}.")
    return as_data(validation)


def _enough(batches: Iterable[Batch]) -> Iterator[Batch]:
    count = 0
    for batch in batches:
        if not num_samples(batch):
            raise InputsError("A batch holds no samples. Expected at least one in each.")
        yield batch
        count += num_samples(batch)
        if count >= _NUM_SAMPLES:
            return


def _named_parts(batch: Any) -> list[str]:
    """Names what a batch, or its description, holds: `x`, `y/0`, `sample_weight`."""
    return [
        "/".join(map(str, (name, *path)))
        for name, part in zip(Batch._fields, batch, strict=True)
        if part is not None
        for path, _ in keras.tree.flatten_with_path(part)
    ]
