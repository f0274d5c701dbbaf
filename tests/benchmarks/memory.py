"""What the benchmarks share: the peak memory of one call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PAGE_BYTES = 4096
_INTERVAL_SECONDS = 0.002


def resident_bytes() -> int:
    """Return the resident set of this process, from Linux's /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def peak_of(call: Callable[[], Any], num_calls: int = 3) -> int:
    """Return how far the resident set rises above where it was before.

    Args:
        call: What is measured. It is called several times: the first call makes
            kernels and fills pools of memory, and the peak of all of them counts.
        num_calls: How many times.
    """
    before = resident_bytes()
    peak = before
    is_over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(_INTERVAL_SECONDS):
            peak = max(peak, resident_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(num_calls):
            call()
    finally:
        is_over.set()
        watcher.join()
    return peak - before
