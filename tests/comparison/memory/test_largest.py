from __future__ import annotations

import re

import numpy as np
import pytest

import tf_amp_kit as amp
from tests.comparison.memory.models import chain, fixed
from tf_amp_kit.comparison.memory import estimate as module
from tf_amp_kit.errors import InputsError


def peak(size, **options):
    return amp.estimate_memory(chain(), size, verbose=0, **options).peak_bytes


@pytest.mark.parametrize("limit", [20_000, 123_456, 1_000_000])
def test_the_largest_batch_fits_and_the_next_one_does_not(limit) -> None:
    size = amp.largest_batch_size(chain(), limit)
    assert peak(size) <= limit < peak(size + 1)


def test_a_peak_to_the_byte_fits() -> None:
    assert amp.largest_batch_size(chain(), peak(50)) == 50
    assert amp.largest_batch_size(chain(), peak(50) - 1) == 49


def test_nothing_fits_where_the_weights_alone_do_not() -> None:
    assert amp.largest_batch_size(chain(), 4 * 325) == 0


def test_no_memory_holds_nothing() -> None:
    assert amp.largest_batch_size(chain(), 0) == 0


def test_half_precision_leaves_room_for_a_larger_batch() -> None:
    sizes = [amp.largest_batch_size(chain(), 10**6, precision=one) for one in ("fp32", "bf16")]
    assert sizes[1] > sizes[0]


def test_replicas_take_a_multiple_of_what_one_takes() -> None:
    alone = amp.largest_batch_size(chain(), 10**5)
    assert amp.largest_batch_size(chain(), 10**5, num_replicas=4) == 4 * alone


def test_the_memory_is_what_the_machine_has_free(monkeypatch) -> None:
    monkeypatch.setattr(module, "free_memory_bytes", lambda: 10**5)
    assert amp.largest_batch_size(chain()) == amp.largest_batch_size(chain(), 10**5)


def test_a_machine_that_does_not_tell_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr(module, "free_memory_bytes", lambda: None)
    with pytest.raises(InputsError, match=re.escape("Expected `memory_bytes=`")):
        amp.largest_batch_size(chain())


@pytest.mark.parametrize("memory", [np.int64(10**5), np.float32(10**5), np.float64(1e5)])
def test_numbers_of_numpy_are_amounts_of_memory(memory) -> None:
    assert amp.largest_batch_size(chain(), memory) == amp.largest_batch_size(chain(), 10**5)


@pytest.mark.parametrize("memory", [1e18, 10**400])
def test_no_batch_is_larger_than_what_kernels_count(memory) -> None:
    assert amp.largest_batch_size(chain(), memory) == 2**31 - 1


def test_a_fixed_batch_fits_or_it_does_not() -> None:
    needed = amp.estimate_memory(fixed(), 8, verbose=0).peak_bytes
    sizes = [amp.largest_batch_size(fixed(), one) for one in (10**9, needed, needed - 1)]
    assert sizes == [8, 8, 0]


@pytest.mark.parametrize("memory", [-1, float("nan"), float("inf"), "1e9", True])
def test_what_is_no_amount_of_memory_is_refused(memory) -> None:
    with pytest.raises(InputsError, match=re.escape(f"Received: memory_bytes={memory!r}.")):
        amp.largest_batch_size(chain(), memory)


@pytest.mark.parametrize("largest", [1, 2, 31, 32, 33, 34, 100, 1000])
def test_the_search_finds_any_size_along_a_crooked_line(largest) -> None:
    def peak_of(size):
        return size + (size > largest) * 10_000 + (size > 20) * 500

    assert module._last_that_fits(peak_of, 5000) == largest
