"""What is told on a terminal, and that nothing is told elsewhere."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator

import pytest

from tf_amp_kit import progress
from tf_amp_kit.progress import working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0.0)


@contextlib.contextmanager
def on_terminal() -> Iterator[Terminal]:
    """Takes standard error inside of the test, as pytest takes it before each."""
    with contextlib.redirect_stderr(Terminal()) as terminal:
        yield terminal


def wait_for(terminal: Terminal, text: str) -> bool:
    end = time.monotonic() + 10
    while text not in terminal.getvalue() and time.monotonic() < end:
        time.sleep(0.01)
    return text in terminal.getvalue()


def test_what_takes_long_is_told() -> None:
    with on_terminal() as terminal, working("Counting stars"):
        assert wait_for(terminal, "Counting stars")


def test_the_text_can_change() -> None:
    with on_terminal() as terminal, working("Counting") as say:
        say("Counting: [2] of 3")
        assert wait_for(terminal, "Counting: [2] of 3")


def test_what_takes_no_time_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal() as terminal:
        monkeypatch.setattr(progress, "_DELAY_SECONDS", 60.0)
        with working("Counting"):
            pass
        assert terminal.getvalue() == ""


def test_a_block_inside_changes_the_line_of_the_outer_one() -> None:
    with on_terminal() as terminal, working("Outer"):
        assert wait_for(terminal, "Outer")
        with working("Inner", is_shown=False):
            assert wait_for(terminal, "Inner")
        place = len(terminal.getvalue())
        end = time.monotonic() + 10
        while "Outer" not in terminal.getvalue()[place:] and time.monotonic() < end:
            time.sleep(0.01)
        assert "Outer" in terminal.getvalue()[place:]


def test_an_error_ends_the_line() -> None:
    with on_terminal() as terminal:
        with pytest.raises(KeyError), working("Failing"):
            raise KeyError
        with working("After"):
            assert wait_for(terminal, "After")


def test_who_wants_nothing_gets_nothing() -> None:
    with on_terminal() as terminal:
        with working("Counting", is_shown=False) as say:
            say("more")
            time.sleep(0.05)
        assert terminal.getvalue() == ""


def test_nothing_is_told_where_there_is_no_terminal() -> None:
    with contextlib.redirect_stderr(io.StringIO()) as file, working("Counting"):
        time.sleep(0.05)
    assert file.getvalue() == ""
