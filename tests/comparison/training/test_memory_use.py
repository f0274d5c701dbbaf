"""The largest batch that fits, by the line through two estimates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.comparison.training.given import X, Y, dense
from tf_amp_kit.comparison.training import memory_use
from tf_amp_kit.comparison.training.memory_use import memory_of
from tf_amp_kit.data import Batch

BATCH = Batch(X[:8], Y[:8])


@pytest.fixture
def estimates(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A model that takes 1000 bytes, and 50 more for each sample; 9000 are free."""
    asked: list[int] = []

    def estimate(_model: Any, batch_size: int, **_options: Any) -> Any:
        asked.append(batch_size)
        return SimpleNamespace(peak_bytes=1000 + 50 * batch_size)

    monkeypatch.setattr(memory_use, "estimate_memory", estimate)
    monkeypatch.setattr(memory_use, "free_memory_bytes", lambda: 9000)
    return asked


def test_what_fits_is_where_the_line_comes_to_what_is_free(estimates: list[int]) -> None:
    used, note = memory_of(dense(), BATCH)
    assert (used.estimated_bytes, used.largest_batch_size, note) == (1400, 160, "")


def test_two_estimates_are_made(estimates: list[int]) -> None:
    memory_of(dense(), BATCH)
    assert len(estimates) == 2


@pytest.mark.parametrize(("free", "expected"), [(1100, 2), (1000, 0), (10, 0)])
def test_less_than_the_batch_may_fit(
    estimates: list[int], monkeypatch: pytest.MonkeyPatch, free: int, expected: int
) -> None:
    monkeypatch.setattr(memory_use, "free_memory_bytes", lambda: free)
    assert memory_of(dense(), BATCH)[0].largest_batch_size == expected


def test_nobody_knows_what_fits_where_nobody_knows_what_is_free(
    estimates: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_use, "free_memory_bytes", lambda: None)
    used, _ = memory_of(dense(), BATCH)
    assert (used.largest_batch_size, estimates) == (None, [8])


def test_a_model_that_cannot_be_estimated_is_told() -> None:
    odd = Batch(np.ones((8, 7), "float32"), Y[:8])
    used, note = memory_of(dense(), odd)
    assert (used.estimated_bytes, note.startswith("The memory could not be")) == (None, True)
