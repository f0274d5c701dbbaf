"""How much memory a machine has left, and how much this process takes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

__all__ = ["free_memory_bytes", "peak_resident_bytes", "resident_bytes"]

_MEMINFO: Final = Path("/proc/meminfo")
_STATUS: Final = Path("/proc/self/status")
_STATM: Final = Path("/proc/self/statm")

# What a container may take, in the second and the first version of control groups.
_LIMITS: Final = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def free_memory_bytes() -> int | None:
    """Tells how many bytes new work may take before the system swaps or kills.

    That is what Linux calls available: free, or held by caches that give way. Inside
    of a container it is not more than what the container may still take.

    Returns:
        Bytes, or None where the system does not tell.

    Example:

    >>> free = free_memory_bytes()
    >>> free is None or free > 0
    True
    """
    available = _field(_MEMINFO, "MemAvailable")
    if available is None:
        return None
    return min(available, *(_left_of(*files) for files in _LIMITS), key=_or_infinity)


def resident_bytes() -> int | None:
    """Tells how many bytes of physical memory this process holds now.

    Returns:
        Bytes, or None where the system does not tell.

    Example:

    >>> resident = resident_bytes()
    >>> resident is None or resident > 0
    True
    """
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes() -> int | None:
    """Tells the most bytes of physical memory that this process ever held.

    Returns:
        Bytes, or None where the system does not tell.

    Example:

    >>> peak = peak_resident_bytes()
    >>> peak is None or peak >= resident_bytes() - 2**24
    True
    """
    peak = _field(_STATUS, "VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return None
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def _field(file: Path, name: str) -> int | None:
    """Reads one field of a file of /proc, which are in units of 1024 bytes."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    values = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(values[0]) * 1024 if values else None


def _left_of(limit_file: Path, used_file: Path) -> int | None:
    try:
        limit, used = limit_file.read_text().strip(), used_file.read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)


def _or_infinity(value: int | None) -> float:
    return float("inf") if value is None else value
