"""Telling on a terminal what is being done, where it takes longer than one waits gladly."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["working"]

# What takes no longer needs no word.
_DELAY_SECONDS: Final = 2.0

_active: list[_Line] = []


@contextlib.contextmanager
def working(text: str, *, is_shown: bool = True) -> Iterator[Callable[[str], None]]:
    """Says what is being done, from two seconds on, until the `with` block ends.

    It is one line on standard error, which goes away again; there is none where that is
    no terminal. Inside of another such block only the other's text changes.

    Args:
        text: What is being done.
        is_shown: Whether to say it.

    Yields:
        A function that takes another text.

    Example:

    >>> with working("Counting") as say:
    ...     for number in range(3):
    ...         say(f"Counting: {number} of 3")
    """
    if _active:
        before = _active[0].text
        _active[0].say(text)
        try:
            yield _active[0].say
        finally:
            _active[0].say(before)
        return
    if not is_shown or not sys.stderr.isatty():
        yield lambda _: None
        return
    line = _Line(text)
    _active.append(line)
    try:
        yield line.say
    finally:
        _active.clear()
        line.end()


class _Line:
    """A line that begins late, and can be changed by any thread."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._live: Any = None
        self._is_over = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(_DELAY_SECONDS, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def say(self, text: str) -> None:
        """Changes the text."""
        with self._lock:
            self.text = text
            if self._live is not None:
                self._live.update(self._spinner())

    def end(self) -> None:
        """Takes the line away."""
        self._timer.cancel()
        with self._lock:
            self._is_over = True
            if self._live is not None:
                self._live.stop()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._is_over:
                return
            # What user's code prints goes where it always does.
            self._live = Live(
                self._spinner(),
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _spinner(self) -> Any:
        from rich.spinner import Spinner
        from rich.text import Text

        return Spinner("dots", Text(self.text))
