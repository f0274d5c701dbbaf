"""The expected numbers follow from the rules of `BFCAllocator`, by hand."""

from __future__ import annotations

import pytest

from tf_amp_kit.comparison.memory.allocator import Allocator

MEBIBYTE = 2**20


def test_memory_is_never_given_back() -> None:
    allocator = Allocator()
    allocator.free(allocator.allocate(5 * MEBIBYTE))
    assert allocator.held_bytes == 5 * MEBIBYTE


def test_a_free_place_is_used_again() -> None:
    allocator = Allocator()
    allocator.free(allocator.allocate(5 * MEBIBYTE))
    allocator.allocate(3 * MEBIBYTE)
    assert allocator.held_bytes == 5 * MEBIBYTE


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_neighbours_that_are_free_are_joined(order) -> None:
    allocator = Allocator()
    chunks = [allocator.allocate(MEBIBYTE), allocator.allocate(MEBIBYTE)]
    for number in order:
        allocator.free(chunks[number])
    allocator.allocate(2 * MEBIBYTE)
    assert allocator.held_bytes == 2 * MEBIBYTE


def test_a_gap_that_is_too_small_stays() -> None:
    allocator = Allocator()
    # Regions are 2, 4 and 8 MiB: the second buffer lies behind the first one.
    first = allocator.allocate(MEBIBYTE // 2)
    allocator.allocate(MEBIBYTE // 2)
    allocator.free(first)
    allocator.allocate(3 * MEBIBYTE // 4)
    assert allocator.held_bytes == (2 * MEBIBYTE + 3 * MEBIBYTE) // 4 + MEBIBYTE // 2


def test_a_chunk_below_twice_the_size_is_taken_whole() -> None:
    allocator = Allocator()
    # 2 MiB are less than twice 1.25: nothing is left of the first region.
    allocator.allocate(5 * MEBIBYTE // 4)
    small = allocator.allocate(MEBIBYTE // 2)
    assert small.region == 1


def test_a_chunk_of_twice_the_size_is_split() -> None:
    allocator = Allocator()
    allocator.allocate(MEBIBYTE)
    assert allocator.allocate(MEBIBYTE // 2).region == 0


def test_small_buffers_come_from_the_c_library() -> None:
    allocator = Allocator()
    small = allocator.allocate(1000)
    allocator.free(small)
    allocator.allocate(500)
    assert small.region == -1
    assert allocator.held_bytes == 1000
