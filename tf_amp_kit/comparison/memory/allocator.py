"""How TensorFlow's allocator lays buffers out, and what it holds in the end.

TensorFlow asks the system for large regions, cuts chunks from them and never gives them
back, on GPUs and, with oneDNN, on CPUs (`BFCAllocator`, "best fit with coalescing"). A
process holds the pages that were ever written. That is more than the buffers that live
at one time, because a free chunk is taken whole unless it is twice what is asked for, and
because small buffers lie between large gaps.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Allocator", "Chunk"]

# The numbers of `BFCAllocator`.
_ALIGNMENT: Final = 256
_FIRST_REGION: Final = 2 * 2**20
_LARGEST_WASTE: Final = 128 * 2**20

# With oneDNN, smaller buffers come from the C library instead.
_SMALLEST: Final = 256 * 2**10

_PAGE: Final = 4096


@dataclass(eq=False)
class Chunk:
    """A part of a region, free or taken; its neighbours are of the same region."""

    region: int
    start: int
    size: int
    is_free: bool = True
    before: Chunk | None = None
    after: Chunk | None = None


class Allocator:
    """TensorFlow's allocator, without memory behind it.

    Example:

    >>> allocator = Allocator()
    >>> allocator.free(allocator.allocate(2**20))
    >>> second = allocator.allocate(2**20)
    >>> allocator.held_bytes == 2**20
    True
    """

    def __init__(self) -> None:
        # Sorted by size, region and start: the first that is large enough is taken.
        self._free: list[tuple[int, int, int, Chunk]] = []
        self._touched: list[NDArray[np.bool_]] = []
        self._next_region = _FIRST_REGION
        self._small = self._most_small = 0

    @property
    def held_bytes(self) -> int:
        """All pages that were ever written."""
        return self._most_small + _PAGE * sum(int(pages.sum()) for pages in self._touched)

    def allocate(self, size: int) -> Chunk:
        """Finds a place for a buffer of some bytes."""
        if size < _SMALLEST:
            self._small += size
            self._most_small = max(self._most_small, self._small)
            return Chunk(-1, 0, size, is_free=False)
        rounded = -(-size // _ALIGNMENT) * _ALIGNMENT
        chunk = self._best_fit(rounded)
        if chunk.size >= 2 * rounded or chunk.size - rounded >= _LARGEST_WASTE:
            self._split(chunk, rounded)
        chunk.is_free = False
        pages = slice(chunk.start // _PAGE, -(-(chunk.start + size) // _PAGE))
        self._touched[chunk.region][pages] = True
        return chunk

    def free(self, chunk: Chunk) -> None:
        """Takes a buffer back, and joins it with free neighbours."""
        if chunk.region < 0:
            self._small -= chunk.size
            return
        if chunk.after is not None and chunk.after.is_free:
            self._remove(chunk.after)
            _absorb(chunk, chunk.after)
        if chunk.before is not None and chunk.before.is_free:
            self._remove(chunk.before)
            chunk = _absorb(chunk.before, chunk)
        self._add(chunk)

    def _best_fit(self, size: int) -> Chunk:
        index = bisect.bisect_left(self._free, (size,))
        if index == len(self._free):
            self._extend(size)
        return self._free.pop(index)[-1]

    def _extend(self, size: int) -> None:
        """Asks for a region: each is twice as large as the one before, or larger."""
        is_enough = size <= self._next_region
        while size > self._next_region:
            self._next_region *= 2
        self._add(Chunk(len(self._touched), 0, self._next_region))
        self._touched.append(np.zeros(self._next_region // _PAGE, np.bool_))
        if is_enough:
            self._next_region *= 2

    def _split(self, chunk: Chunk, size: int) -> None:
        rest = Chunk(chunk.region, chunk.start + size, chunk.size - size)
        rest.before, rest.after = chunk, chunk.after
        if rest.after is not None:
            rest.after.before = rest
        chunk.after, chunk.size = rest, size
        self._add(rest)

    def _add(self, chunk: Chunk) -> None:
        chunk.is_free = True
        bisect.insort(self._free, (chunk.size, chunk.region, chunk.start, chunk))

    def _remove(self, chunk: Chunk) -> None:
        del self._free[bisect.bisect_left(self._free, (chunk.size, chunk.region, chunk.start))]


def _absorb(chunk: Chunk, after: Chunk) -> Chunk:
    chunk.size += after.size
    chunk.after = after.after
    if after.after is not None:
        after.after.before = chunk
    return chunk
