"""Ctrl-C, really sent to this process, while a block runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tf_amp_kit.comparison.training.running.interruption import interruption_deferred


@pytest.fixture(autouse=True)
def _python_s_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_without_ctrl_c_nothing_is_due() -> None:
    with interruption_deferred() as interruption:
        interruption.raise_if_due()
        assert not interruption.is_due


def test_ctrl_c_lets_the_block_go_on() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruption_deferred():
        press()
        done.append("the rest of the step")
    assert done == ["the rest of the step"]


def test_ctrl_c_is_noted() -> None:
    with pytest.raises(KeyboardInterrupt), interruption_deferred() as interruption:
        press()
        assert interruption.is_due


def test_ctrl_c_ends_the_block_where_it_looks() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruption_deferred() as interruption:
        press()
        interruption.raise_if_due()
        done.append("after the look")
    assert done == []


def test_ctrl_c_that_nobody_looked_for_is_raised_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt), interruption_deferred():
        press()


def test_the_second_ctrl_c_stops_at_once() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruption_deferred():
        press()
        done.append("after the first")
        press()
        done.append("after the second")
    assert done == ["after the first"]


def test_an_error_of_the_block_is_raised_before_ctrl_c() -> None:
    with pytest.raises(ValueError, match="mine"), interruption_deferred():
        press()
        raise ValueError("mine")


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_afterwards_ctrl_c_is_python_s_again(error: type[BaseException] | None) -> None:
    try:
        with interruption_deferred():
            if error:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_user_is_left_alone() -> None:
    pressed = []
    signal.signal(signal.SIGINT, lambda *_: pressed.append("mine"))
    with interruption_deferred() as interruption:
        press()
    assert (pressed, interruption.is_due) == (["mine"], False)


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruption_deferred():
        press()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_block_within_a_block_leaves_ctrl_c_to_the_outer_one() -> None:
    with pytest.raises(KeyboardInterrupt), interruption_deferred() as outer:
        with interruption_deferred() as inner:
            press()
        assert (outer.is_due, inner.is_due) == (True, False)


def test_in_another_thread_nothing_is_replaced() -> None:
    found = []

    def run() -> None:
        with interruption_deferred() as interruption:
            found.append((signal.getsignal(signal.SIGINT), interruption.is_due))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [(signal.default_int_handler, False)]
