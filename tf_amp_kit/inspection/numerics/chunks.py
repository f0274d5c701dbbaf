"""Arrays of any layout as short float32 pieces, and the memory to work on them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CHUNK", "Scratch", "float32_chunks", "scratch"]

# The piece and its scratch arrays, 25 bytes per element, should stay in a
# second-level cache; a NumPy call costs as much as 5000 elements of its work.
CHUNK: Final = 1 << 15


class Scratch(threading.local):
    """Arrays to work in, one set per thread: new ones would leave the cache.

    Whoever uses them leaves nothing in them. `keys` and `wide` share their memory.
    """

    def __init__(self) -> None:
        self.bits = np.empty(CHUNK, np.uint32)
        self.first = np.empty(CHUNK, np.uint32)
        self.second = np.empty(CHUNK, np.uint32)
        self.mask = np.empty(CHUNK, np.bool_)
        self.wide = np.empty(CHUNK, np.float64)
        self.keys = self.wide.view(np.int64)


scratch: Final = Scratch()


def float32_chunks(values: NDArray[Any]) -> Iterator[NDArray[np.float32]]:
    """Cuts an array into contiguous float32 pieces, without copying all of it.

    A piece is only good until the next one is asked for. The order of elements is
    that of the memory. A float64 value that float32 cannot hold becomes infinite.

    Args:
        values: A float array of any shape and layout. It is not changed.

    Yields:
        Arrays of one dimension, with 1 to `CHUNK` elements.

    Example:

    >>> [piece.size for piece in float32_chunks(np.zeros((2, 20000)).T)]
    [32768, 7232]
    """
    if values.dtype == np.float32 and values.flags.c_contiguous and values.flags.aligned:
        flat = values.reshape(-1)
        for start in range(0, flat.size, CHUNK):
            yield flat[start : start + CHUNK]
    elif values.size:
        # NumPy's stubs spell "contig" as "config".
        yield from np.nditer(  # type: ignore[call-overload]
            values,
            flags=["external_loop", "buffered"],
            op_flags=[["readonly", "aligned", "contig", "nbo"]],
            op_dtypes=[np.dtype(np.float32)],
            casting="same_kind",
            buffersize=CHUNK,
        )
