"""What is told on standard error, with a terminal and without one."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import pytest

from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.running import progress
from tf_amp_kit.comparison.training.running.progress import Progress

RUN = TrainingRun("bfloat16", 1, (2.5, 1.25, 0.123456), seconds=2.26)
SHOWN = Progress(10, is_shown=True)


class Clock:
    """A clock that the test moves."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(progress, "time", one)
    monkeypatch.setattr(progress, "_last", [0.0])
    return one


class Terminal(io.StringIO):
    """A standard error on which a line can be written over."""

    def isatty(self) -> bool:
        return True


def told(*actions: Callable[[], None]) -> str:
    """What actions write on a terminal."""
    with contextlib.redirect_stderr(Terminal()) as terminal:
        for action in actions:
            action()
    return terminal.getvalue()


def on_screen(text: str) -> list[str]:
    """What is to be seen in the end: a line starts anew, and may erase what was there."""
    lines = []
    for line in text.split("\n"):
        shown = ""
        for part in line.split("\r"):
            erases, plain = part.startswith("\x1b[K"), part.replace("\x1b[K", "")
            shown = plain if erases else plain + shown[len(plain) :]
        lines.append(shown)
    return lines


def test_the_end_of_a_run_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    SHOWN.end(RUN)
    assert capsys.readouterr() == (
        "",
        "bfloat16, seed 1: 3 of 10 steps, loss 2.5 -> 0.1235, 2.3 s\n",
    )


def test_why_a_run_ended_early_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    SHOWN.end(TrainingRun("float16", 0, (), failure="ValueError: no"))
    assert capsys.readouterr().err == (
        "float16, seed 0: 0 of 10 steps, 0.0 s, ended early: ValueError: no\n"
    )


def test_without_a_terminal_single_steps_are_not_told(
    capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    SHOWN.step(RUN)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_steps_are_told_without_a_new_line(clock: Clock) -> None:
    text = told(lambda: SHOWN.step(RUN))
    assert on_screen(text) == ["bfloat16, seed 1: 3 of 10 steps, loss 2.5 -> 0.1235"]


def test_a_shorter_number_leaves_nothing_of_a_longer_one(clock: Clock) -> None:
    def step(loss: float) -> None:
        clock.now += 1
        SHOWN.step(TrainingRun("float32", 0, (2.0, loss)))

    text = told(lambda: step(0.1235), lambda: step(1.0))
    assert on_screen(text) == ["float32, seed 0: 2 of 10 steps, loss 2 -> 1"]


def test_steps_are_told_twice_a_second(clock: Clock) -> None:
    found = []
    for seconds in (0.0, 0.25, 0.5, 0.75, 1.0):
        clock.now = 1000.0 + seconds
        found.append(bool(told(lambda: SHOWN.step(RUN))))
    assert found == [True, False, True, False, True]


def test_on_a_terminal_a_line_writes_over_the_steps(clock: Clock) -> None:
    text = told(lambda: SHOWN.step(RUN), lambda: SHOWN.say("Timing train steps"))
    assert on_screen(text) == ["Timing train steps", ""]


def test_what_is_not_shown_says_nothing(clock: Clock) -> None:
    for silent in (Progress(10, is_shown=False), SHOWN.muted()):
        actions = (silent.step, silent.end, lambda _: silent.say("text"))  # noqa: B023
        assert told(*(lambda: action(RUN) for action in actions)) == ""  # noqa: B023


def test_muting_one_leaves_the_other() -> None:
    SHOWN.muted()
    assert SHOWN.is_shown
