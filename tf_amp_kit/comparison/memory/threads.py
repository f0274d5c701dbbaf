"""Which of the steps that could run a thread takes, as TensorFlow's executor does it."""

from __future__ import annotations

from collections import deque

__all__ = ["Ready"]


class Ready:
    """The steps that wait for a thread.

    A thread does small ones at once, then what it made ready last, and then what another
    one made ready first. So an update goes on while its gradient is there, though other
    gradients could be made.

    Args:
        threads: How many there are.

    Example:

    >>> ready = Ready(2)
    >>> for number in (1, 2, 3):
    ...     ready.add(number, 0, is_small=False)
    >>> ready.next_for(0), ready.next_for(1)
    (3, 1)
    """

    def __init__(self, threads: int) -> None:
        self._small: deque[int] = deque()
        self._large: list[deque[int]] = [deque() for _ in range(threads)]

    def add(self, number: int, thread: int, *, is_small: bool) -> None:
        """Takes a step that a thread made ready."""
        (self._small if is_small else self._large[thread]).append(number)

    def next_for(self, thread: int) -> int | None:
        """Gives what a thread does next, None for nothing."""
        if self._small:
            return self._small.popleft()
        if self._large[thread]:
            return self._large[thread].pop()
        fullest = max(self._large, key=len)
        return fullest.popleft() if fullest else None
