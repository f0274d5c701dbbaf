"""Keeping a bad batch in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_amp_kit.data import Batch
from tf_amp_kit.formats import is_half
from tf_amp_kit.tracing.numbering import keyed_leaves

__all__ = ["save_batch", "writable"]


def writable(path: str | os.PathLike[str]) -> Path:
    """Makes the folder of a file, and returns the file's path.

    Args:
        path: The file; `.npz` is added where it is missing.

    Raises:
        OSError: If the folder cannot be made.
    """
    target = Path(path)
    target = target if target.suffix == ".npz" else target.with_name(f"{target.name}.npz")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def save_batch(batch: Batch, path: str | os.PathLike[str]) -> str:
    """Saves a batch as an `.npz` file.

    Args:
        batch: Tensors; sparse and ragged ones are saved dense.
        path: The file; `.npz` is added where it is missing, and folders are made.

    Returns:
        The file's path.
    """
    target = writable(path)
    arrays = {
        f"{name}/{place}": _array(leaf)
        for name, values in batch._asdict().items()
        if values is not None
        for place, leaf in keyed_leaves(values)
    }
    np.savez(target, **arrays)
    return str(target)


def _array(value: Any) -> Any:
    if isinstance(value, tf.SparseTensor):
        value = tf.sparse.to_dense(value)
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    # NumPy reads bfloat16 back as bytes; float32 holds every half value.
    return tf.cast(value, tf.float32).numpy() if is_half(value.dtype.name) else value.numpy()
