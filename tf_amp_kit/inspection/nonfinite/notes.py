"""What a search for NaN and Inf has to say besides its origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_amp_kit.formats import is_float
from tf_amp_kit.inspection.remarks import about_train_step
from tf_amp_kit.tables import some

__all__ = ["Tally", "notes_on", "spoilt"]


@dataclass
class Tally:
    """What could not be followed to its origin.

    Attributes:
        num_lost: Batches that were bad in one run, and not in the next.
        num_written: Batches after which a variable holds what no operation outside of
            branches, loops and functions wrote.
    """

    num_lost: int = 0
    num_written: int = 0


def notes_on(
    model: Any,
    tally: Tally,
    *,
    spoilt_paths: Sequence[str] = (),
    reached: Sequence[str] = (),
    elsewhere: str = "",
) -> Iterator[str]:
    """Yields the notes of a report.

    Args:
        model: The model.
        tally: What could not be followed.
        spoilt_paths: Variables with NaN or Inf, those aside that are the origin.
        reached: What the NaN or Inf reached, by name; empty names for what has none.
        elsewhere: Where it begins in float32, if that is another place.
    """
    if tally.num_written:
        yield (
            f"In {tally.num_written} of the batches NaN or Inf was written to a variable by a "
            "branch, a loop or a function inside the step: this is not followed further."
        )
    if tally.num_lost:
        yield (
            f"In {tally.num_lost} of the runs there was NaN or Inf that did not come again: an "
            "operation draws random numbers without a seed of Keras."
        )
    if spoilt_paths:
        yield f"NaN or Inf is in {len(spoilt_paths)} variables: {some(spoilt_paths)}."
    if any(reached) and all(name.startswith("@metrics/") for name in reached if name):
        yield "Only a metric is affected: the training itself is not."
    if elsewhere:
        yield f"In float32 this is finite, but there NaN or Inf begins in {elsewhere}."
    yield from about_train_step(model)


def spoilt(variables: Sequence[tuple[Any, str]]) -> list[str]:
    """Lists the paths of variables that hold NaN or Inf.

    Args:
        variables: Each `keras.Variable` with its path.
    """
    return [
        path
        for variable, path in variables
        if is_float(variable.dtype) and not bool(tf.reduce_all(tf.math.is_finite(variable.value)))
    ]
