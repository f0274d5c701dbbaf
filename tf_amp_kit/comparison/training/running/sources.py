"""The batches that every precision trains on: the same ones in the same order."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.data import Batch, as_data, batches_of, count_batches, num_samples
from tf_amp_kit.errors import InputsError

__all__ = ["Source", "check_same", "fingerprint"]

_SAME_BATCHES: Final = (
    "Every precision has to get the same batches: give `shuffle` a seed and "
    "reshuffle_each_iteration=False, or cache() what random operations made."
)


@dataclass(frozen=True)
class Source:
    """Data that can be read as often as wanted.

    Attributes:
        data: `(x, y[, sample_weight])`, a dataset, or a function without arguments that
            returns one.
        batch_size: How many samples of arrays are a batch; None for all of them.
        argument: What the user calls it.
    """

    data: Any
    batch_size: int | None
    argument: str = "train_data"

    def opened(self) -> Source:
        """Returns the same source with its function called, once for all that follows."""
        return replace(self, data=self.open())

    def open(self) -> Any:
        """Returns the data themselves.

        Raises:
            InputsError: If there are none.
        """
        data = self.data
        if callable(data) and not isinstance(data, tf.data.Dataset | keras.utils.PyDataset):
            data = data()
        is_nothing = isinstance(data, list | tuple) and not data
        if data is None or is_nothing:
            raise InputsError(
                f"There are no data. Expected (x, y), a dataset or a PyDataset, or a function "
                f"that returns one. Received: {self.argument}={self.data!r}."
            )
        return as_data(data)

    def steps(self, seed: int) -> Iterator[Batch]:
        """Yields batches without end, epoch after epoch.

        Arrays are shuffled anew for each epoch, as in `fit`, by the seed; datasets come as
        they are.

        Args:
            seed: The seed of the run.
        """
        data, epoch = self.open(), 0
        while True:
            yield from batches_of(data, self.batch_size, shuffle_seed=(seed, epoch))
            epoch += 1

    def num_batches(self) -> int:
        """Counts the batches of an epoch.

        Raises:
            InputsError: If they never end.
        """
        data = self.open()
        self.check_that_it_ends(data)
        count = count_batches(data, self.batch_size)
        return sum(1 for _ in batches_of(data, self.batch_size)) if count is None else count

    def check_that_it_ends(self, data: Any) -> None:
        """Refuses data without end."""
        endless = (
            isinstance(data, tf.data.Dataset)
            and int(data.cardinality()) == tf.data.INFINITE_CARDINALITY
        ) or (isinstance(data, keras.utils.PyDataset) and data.num_batches is None)
        if endless:
            way = (
                "Say how many `steps` to train." if self.argument == "train_data" else "Use take()."
            )
            raise InputsError(
                f"The data never end. Expected data with an end. Received: {self.argument} of "
                f"type {type(data).__name__}. {way}"
            )

    def check_that_it_repeats(self) -> Batch:
        """Reads the first batch twice.

        Returns:
            The batch.

        Raises:
            InputsError: If it is another one the second time.
        """
        first, again = (next(self.steps(0)) for _ in range(2))
        check_same(fingerprint(first), fingerprint(again), 0, self.argument)
        if not num_samples(first):
            raise InputsError(
                f"The first batch holds no samples. Expected at least one. Received: "
                f"{self.argument}={self.data!r}."
            )
        return first


def check_same(expected: int, received: int, step: int, argument: str = "train_data") -> None:
    """Refuses a batch that is not the one that float32 was trained on.

    Raises:
        InputsError: If the fingerprints differ.
    """
    if expected != received:
        raise InputsError(
            f"The data are not the same the second time: batch {step + 1} of {argument} "
            f"differs. {_SAME_BATCHES}"
        )


def fingerprint(batch: Batch) -> int:
    """Returns a number that another batch hardly has.

    Example:

    >>> one, other = Batch(tf.ones((2, 3))), Batch(tf.zeros((2, 3)))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, False)
    """
    value = 0
    for leaf in tf.nest.flatten(tuple(batch), expand_composites=True):
        if leaf is not None:
            array = np.ascontiguousarray(leaf.numpy() if tf.is_tensor(leaf) else leaf)
            content = b"\0".join(array.ravel()) if array.dtype == object else array.tobytes()
            value = zlib.crc32(content, zlib.crc32(repr(array.shape).encode(), value))
    return value
