"""Functions in a process of their own: what they return, raise, and how they die."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.comparison.training import given
from tests.comparison.training.running import errands
from tf_amp_kit.comparison.training.running import isolation
from tf_amp_kit.comparison.training.running.isolation import (
    check_sendable,
    in_own_process,
    measured_run,
)
from tf_amp_kit.comparison.training.running.run import Run
from tf_amp_kit.errors import InputsError, ProcessDiedError


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks off a process that has imported TensorFlow, which takes seconds, once for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([isolation.__name__])
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)


quickly = pytest.mark.usefixtures("_quick")


@pytest.fixture
def _python_s_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


# ------------------------------------------------------------------------------- answers


@quickly
def test_a_result_comes_back() -> None:
    assert in_own_process(errands.doubled, [1, 2]) == [1, 2, 1, 2]


@quickly
def test_the_process_is_another_one() -> None:
    assert in_own_process(os.getpid) != os.getpid()


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("mine"), InputsError("mine")])
@quickly
def test_an_error_comes_back_with_its_type(error: Exception) -> None:
    with pytest.raises(type(error), match="mine"):
        in_own_process(errands.raising, error)


@quickly
def test_the_traceback_of_the_process_is_the_cause() -> None:
    with pytest.raises(ValueError, match="mine") as caught:
        in_own_process(errands.raising, ValueError("mine"))
    assert "in raising" in str(caught.value.__cause__)


@quickly
def test_an_error_that_cannot_be_sent_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match="Unsendable: mine"):
        in_own_process(errands.raising_unsendable)


@quickly
def test_an_error_that_cannot_be_made_again_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match="OfTwo: mine"):
        in_own_process(errands.raising_of_two)


@quickly
def test_a_result_that_cannot_be_sent_is_an_error_and_no_death() -> None:
    with pytest.raises((TypeError, AttributeError, RuntimeError), match="pickle"):
        in_own_process(errands.unsendable)


@pytest.mark.parametrize("code", [0, 3])
@quickly
def test_a_process_that_exits_without_an_answer_has_died(code: int) -> None:
    message = f"its process ended with exit code {code} before it answered"
    with pytest.raises(ProcessDiedError, match=re.escape(message)):
        in_own_process(os._exit, code)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@quickly
def test_a_process_that_is_killed_has_died(number: int) -> None:
    message = f"its process ended with exit code -{int(number)} before it answered"
    with pytest.raises(ProcessDiedError, match=re.escape(message)):
        in_own_process(errands.killed, number)


@quickly
def test_a_process_that_leaves_by_sys_exit_raises_that() -> None:
    with pytest.raises(SystemExit):
        in_own_process(sys.exit, 4)


@quickly
def test_a_larger_result_than_a_pipe_holds_comes_back() -> None:
    assert in_own_process(errands.doubled, np.zeros(10**6)).nbytes == 8 * 10**6


@quickly
def test_no_process_is_left() -> None:
    pid = in_own_process(os.getpid)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# ------------------------------------------------------------------------------- Ctrl-C


def press_when(file: Path) -> threading.Thread:
    """Presses Ctrl-C as soon as a file is there."""

    def wait() -> None:
        for _ in range(2000):
            if file.exists():
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


@pytest.mark.usefixtures("_python_s_handler")
@quickly
def test_ctrl_c_is_passed_on_once_and_the_answer_is_waited_for(tmp_path: Path) -> None:
    press_when(tmp_path / "started")
    assert in_own_process(errands.counting_presses, tmp_path / "started") == 1


@pytest.mark.usefixtures("_python_s_handler")
@quickly
def test_ctrl_c_that_the_function_does_not_catch_comes_back(tmp_path: Path) -> None:
    press_when(tmp_path / "started")
    with pytest.raises(KeyboardInterrupt):
        in_own_process(errands.sleeping, tmp_path / "started")


# --------------------------------------------------------------------- what can be sent


def function() -> None: ...


@pytest.mark.parametrize("thing", [function, (np.ones(3), np.zeros(3)), None, errands.doubled])
def test_functions_of_modules_and_arrays_can_be_sent(thing: Any) -> None:
    check_sendable(build_fn=thing)


def locally_defined() -> Callable[[], None]:
    def inner() -> None: ...

    return inner


class Unsendable(keras.utils.PyDataset):
    """Holds what no process can get."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


@pytest.mark.parametrize(
    "thing",
    [
        lambda: None,
        locally_defined(),
        Unsendable(),
        (x for x in ()),
        tf.data.Dataset.range(3),
    ],
)
def test_what_no_process_can_get_is_refused(thing: Any) -> None:
    message = "isolate=True sends train_data to another process, which cannot get it"
    with pytest.raises(InputsError, match=re.escape(message)):
        check_sendable(build_fn=function, train_data=thing)


def test_a_function_of_an_interactive_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setattr(function, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "function", function, raising=False)
    message = "isolate=True needs build_fn in a module that another process can import."
    with pytest.raises(InputsError, match=re.escape(message)):
        check_sendable(build_fn=function)


# ------------------------------------------------------------------------------- memory


def test_a_run_in_its_own_process_tells_its_losses_and_its_memory(tmp_path: Path) -> None:
    run = given.run_of(given.dense, "fp32", tmp_path)
    record = in_own_process(measured_run, run)
    own = given.run_of(given.dense, "fp32", tmp_path / "here").make()
    assert record.losses == own.losses
    assert 2**20 < record.base_bytes <= record.peak_bytes


def test_memory_is_read_before_the_first_steps_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened = []

    def repeats(*_: Any) -> bool:
        happened.append("again")
        return True

    def peak() -> int:
        happened.append("peak")
        return 2**30

    monkeypatch.setattr(Run, "_repeats", repeats)
    monkeypatch.setattr(isolation, "peak_resident_bytes", peak)
    record = measured_run(given.run_of(given.dense, "fp32", tmp_path, tries_again=True))
    assert (happened, record.peak_bytes) == (["peak", "again"], 2**30)
