"""Batches of real values out of every accepted form of training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.data.specs import batch_specs
from tf_amp_kit.errors import InputsError

__all__ = [
    "DEFAULT_BATCH_SIZE",
    "Batch",
    "as_data",
    "batches_of",
    "check_num_batches",
    "count_batches",
    "num_samples",
]

#: How many samples of arrays are a batch, as in `fit`.
DEFAULT_BATCH_SIZE: Final = 32


class Batch(NamedTuple):
    """One batch: inputs, targets and sample weights; None for what is not there."""

    x: Any
    y: Any = None
    sample_weight: Any = None


def as_data(data: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Joins `x, y[, sample_weight]` into one argument; other data stay as they are.

    Args:
        data: A dataset, a tuple `(x, y[, sample_weight])`, or `x`.
        y: Targets, if `data` is `x`.
        sample_weight: Weights, if `data` is `x`.

    Returns:
        A dataset or a tuple; of `x` alone a tuple of one.

    Raises:
        InputsError: If there are targets or weights beside a dataset.

    Example:

    >>> as_data("x", "y")
    ('x', 'y')
    """
    is_dataset = isinstance(data, tf.data.Dataset | keras.utils.PyDataset)
    if y is None and sample_weight is None:
        return data if is_dataset or isinstance(data, tuple) else (data,)
    if is_dataset:
        raise InputsError(
            "A dataset holds its targets itself. Expected no `y` and no `sample_weight` with it. "
            f"Received: a {type(data).__name__} with {'y' if y is not None else 'sample_weight'}."
        )
    return (data, y) if sample_weight is None else (data, y, sample_weight)


def batches_of(data: Any, batch_size: int | None, *, shuffle_seed: Any = None) -> Iterator[Batch]:
    """Yields batches of tensors.

    Args:
        data: A dataset or `PyDataset` of batches, or a tuple `(x, y)` or
            `(x, y, sample_weight)` of arrays or tensors, sparse and ragged too.
        batch_size: How many samples of arrays are a batch; None for all of them.
        shuffle_seed: Puts the samples of arrays into another order, as NumPy's
            `default_rng` of this seed draws it; None leaves them. Datasets have an
            order of their own, and sparse tensors keep theirs.

    Yields:
        One `Batch` after the other, float64 values as float32, as in `fit`.

    Raises:
        InputsError: If the data cannot be read, hold no values or no batch, or differ
            in length; or if the batch size is no whole number from 1 up.

    Example:

    >>> [batch.x.shape[0] for batch in batches_of((np.zeros((5, 3)), np.zeros(5)), 2)]
    [2, 2, 1]
    """
    _check_batch_size(batch_size)
    specs = batch_specs(data)
    is_empty = True
    for batch in _raw_batches(data, specs, batch_size, shuffle_seed):
        is_empty = False
        yield Batch(*_map(_converted, specs, tuple(batch)))
    if is_empty:
        raise InputsError("The data hold no batch. Expected at least one.")


def count_batches(data: Any, batch_size: int | None) -> int | None:
    """Tells how many batches there are; None for those that do not tell, or never end.

    Args:
        data: What `batches_of` takes.
        batch_size: Likewise.

    Returns:
        The number of batches, or None.

    Example:

    >>> count_batches((np.zeros((5, 3)), np.zeros(5)), 2)
    3
    """
    _check_batch_size(batch_size)
    if isinstance(data, tf.data.Dataset):
        count = int(data.cardinality())
        return count if count >= 0 else None
    if isinstance(data, keras.utils.PyDataset):
        return None if data.num_batches is None else int(data.num_batches)
    lengths: list[int] = []
    specs = batch_specs(data)
    _map(lambda _, leaf: lengths.append(int(leaf.shape[0])), specs, _arrays(data, specs))
    return 1 if batch_size is None else max(1, -(-lengths[0] // batch_size))


def check_num_batches(batches: Any) -> None:
    """Refuses what is no number of batches.

    Raises:
        InputsError: If it is no whole number from 1 up.

    Example:

    >>> check_num_batches(3)
    """
    if not isinstance(batches, Integral) or isinstance(batches, bool) or batches < 1:
        raise InputsError(
            f"Expected a whole number of batches from 1 up. Received: batches={batches!r}."
        )


def num_samples(batch: Batch) -> int:
    """Returns how many samples a batch holds.

    Example:

    >>> num_samples(Batch(np.zeros((4, 3))))
    4
    """
    return int(tf.nest.flatten(batch.x)[0].shape[0])


def _check_batch_size(batch_size: Any) -> None:
    is_whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if batch_size is not None and (not is_whole or batch_size < 1):
        raise InputsError(
            "Expected a whole number of samples from 1 up, or None for all of them. "
            f"Received: batch_size={batch_size!r}."
        )


def _raw_batches(
    data: Any, specs: Any, batch_size: int | None, shuffle_seed: Any
) -> Iterator[Batch]:
    if isinstance(data, tf.data.Dataset):
        for element in data:
            yield _batch(element)
    elif isinstance(data, keras.utils.PyDataset):
        for index in range(_length(data)):
            yield _batch(data[index])
    else:
        yield from _slices(_arrays(data, specs), specs, batch_size, shuffle_seed)


def _arrays(data: Any, specs: Any) -> Any:
    return _map(_checked, specs, tuple(_batch(data)))


def _batch(element: Any) -> Batch:
    return Batch(*element) if isinstance(element, tuple) else Batch(element)


def _length(data: Any) -> int:
    count = data.num_batches
    # An endless one: whoever reads it says how many batches are enough.
    return 2**62 if count is None else int(count)


def _slices(whole: Any, specs: Any, batch_size: int | None, shuffle_seed: Any) -> Iterator[Batch]:
    lengths: list[int] = []
    _map(lambda _, leaf: lengths.append(int(leaf.shape[0])), specs, whole)
    if len(set(lengths)) > 1:
        raise InputsError(
            f"Inputs, targets and weights need the same length. Received: lengths {lengths}."
        )
    # Empty data are one empty batch.
    length = max(lengths[0], 1)
    step = batch_size or length
    order = _order(whole, lengths[0], shuffle_seed)
    for start in range(0, length, step):
        end = min(start + step, lengths[0])
        rows = slice(start, end) if order is None else order[start:end]
        yield Batch(*_map(lambda _, leaf: _part(leaf, rows), specs, whole))  # noqa: B023


def _order(whole: Any, length: int, shuffle_seed: Any) -> Any:
    if shuffle_seed is None or any(isinstance(leaf, tf.SparseTensor) for leaf in _leaves(whole)):
        return None
    return np.random.default_rng(shuffle_seed).permutation(length)


def _leaves(whole: Any) -> list[Any]:
    return list(keras.tree.flatten(tuple(whole)))


def _map(change: Callable[[Any, Any], Any], specs: Any, values: Any) -> Any:
    """Applies a function to specs and values; a list of numbers has one spec."""
    if specs is None:
        return None
    if isinstance(specs, dict):
        return {key: _map(change, spec, values[key]) for key, spec in specs.items()}
    if isinstance(specs, list | tuple) and not isinstance(specs, tf.TypeSpec):
        pairs = zip(specs, values, strict=True)
        return type(specs)([_map(change, spec, value) for spec, value in pairs])
    return change(specs, values)


def _checked(_: Any, leaf: Any) -> Any:
    if isinstance(leaf, tf.TypeSpec | keras.KerasTensor) or _is_shape(leaf):
        raise InputsError(
            "A run needs values. Expected arrays, tensors or a dataset. "
            f"Received: {type(leaf).__name__}."
        )
    return leaf if tf.is_tensor(leaf) else np.asarray(leaf)


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, tuple | tf.TensorShape) and None in list(leaf)


def _part(leaf: Any, rows: Any) -> Any:
    """Takes rows: a slice, or their positions."""
    if isinstance(leaf, tf.SparseTensor):
        begin = [rows.start] + [0] * (leaf.shape.rank - 1)
        return tf.sparse.slice(leaf, begin, [rows.stop - rows.start, *leaf.shape[1:]])
    if tf.is_tensor(leaf) and not isinstance(rows, slice):
        return tf.gather(leaf, rows)
    return leaf[rows]


def _converted(spec: Any, value: Any) -> Any:
    if tf.is_tensor(value):
        return value if value.dtype == spec.dtype else tf.cast(value, spec.dtype)
    # What float32 cannot hold becomes infinite, and is told as such where it is looked at.
    with np.errstate(over="ignore"):
        return tf.convert_to_tensor(np.asarray(value), spec.dtype)
