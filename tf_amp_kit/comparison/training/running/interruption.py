"""Letting a train step end before Ctrl-C ends the program."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Interruption", "interruption_deferred"]


class Interruption:
    """Whether somebody wants to stop.

    Attributes:
        is_due: Whether Ctrl-C was pressed.
    """

    is_due = False

    def note(self, *_: Any) -> None:
        """Notes the first Ctrl-C, and stops at once at the second."""
        if self.is_due:
            raise KeyboardInterrupt
        self.is_due = True

    def raise_if_due(self) -> None:
        """Stops now, if somebody wanted to."""
        if self.is_due:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruption_deferred() -> Iterator[Interruption]:
    """Notes Ctrl-C in a `with` block instead of raising in the middle of a step.

    Only the main thread gets signals, and only Python's own handler is replaced.

    Example:

    >>> with interruption_deferred() as interruption:
    ...     interruption.is_due
    False
    """
    interruption = Interruption()
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interruption
        return
    signal.signal(signal.SIGINT, interruption.note)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Pressed after the last look, or while the block ended.
    interruption.raise_if_due()
