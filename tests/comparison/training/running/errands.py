"""What the tests of isolation send to other processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any


class Unsendable(Exception):  # noqa: N818
    """An error that holds what cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class OfTwo(Exception):  # noqa: N818
    """An error that pickle stores, and cannot make again."""

    def __init__(self, text: str, more: str) -> None:
        super().__init__(text)


def doubled(value: Any) -> Any:
    return value * 2 if isinstance(value, list) else value


def raising(error: BaseException) -> None:
    raise error


def raising_unsendable() -> None:
    raise Unsendable("mine")


def raising_of_two() -> None:
    raise OfTwo("mine", "more")


def unsendable() -> Any:
    return threading.Lock()


def killed(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def counting_presses(started: Path) -> int:
    """Counts how often Ctrl-C comes within a second after the first."""
    presses: list[int] = []
    signal.signal(signal.SIGINT, lambda *_: presses.append(1))
    started.touch()
    for _ in range(3000):
        if presses:
            break
        time.sleep(0.01)
    time.sleep(1)
    return len(presses)


def sleeping(started: Path) -> None:
    started.touch()
    time.sleep(60)
