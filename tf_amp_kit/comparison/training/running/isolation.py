"""Calling a function in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

import tensorflow as tf

from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.running.run import Run
from tf_amp_kit.errors import InputsError, ProcessDiedError
from tf_amp_kit.hardware.memory import peak_resident_bytes, resident_bytes

__all__ = ["check_sendable", "in_own_process", "measured_run"]

# What pickle raises, by what it meets; TensorFlow's for datasets.
_UNSENDABLE: Final = (
    AttributeError,
    TypeError,
    ValueError,
    pickle.PickleError,
    tf.errors.OpError,
)


class _Answer(NamedTuple):
    """What a process sends: a result, or an error with its traceback as text."""

    result: Any = None
    error: BaseException | None = None
    told: str = ""


def measured_run(run: Run) -> TrainingRun:
    """Makes a run in this process, which is its own, and tells what memory it took."""
    _warm_up()
    base = resident_bytes()
    record = run.trained()
    gpus = tf.config.list_logical_devices("GPU")
    if gpus:
        # TensorFlow's own books: what the process holds of the host is not what counts.
        peak = int(tf.config.experimental.get_memory_info(gpus[0].name)["peak"])
        record = replace(record, base_bytes=0, peak_bytes=peak)
    else:
        record = replace(record, base_bytes=base, peak_bytes=peak_resident_bytes())
    # Last: a second model beside the first is none of the training's.
    return run.tried_again(record)


def in_own_process(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function in a fresh process, and waits for its result.

    Ctrl-C is passed on to it once; what it then returns is the result.

    Args:
        function: One that another process can import.
        *args: What can be sent there.

    Returns:
        What the function returns.

    Raises:
        ProcessDiedError: If the process ended without an answer.
        BaseException: What the function raises.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, args), daemon=True)
    process.start()
    sender.close()
    try:
        answer = _received(receiver, process)
    finally:
        receiver.close()
        process.join()
    if answer.error is not None:
        raise answer.error from RuntimeError(f"In the process:\n{answer.told}")
    return answer.result


def _received(receiver: Connection, process: Any) -> _Answer:
    try:
        return _next(receiver, process)
    except KeyboardInterrupt:
        os.kill(process.pid, signal.SIGINT)
        try:
            return _next(receiver, process)
        except ProcessDiedError:
            # It had not begun yet, so that there is nothing to tell.
            raise KeyboardInterrupt from None


def _next(receiver: Connection, process: Any) -> _Answer:
    try:
        answer: _Answer = receiver.recv()
    except EOFError:
        process.join()
        raise ProcessDiedError(
            f"its process ended with exit code {process.exitcode} before it answered: killed, for "
            "want of memory perhaps, or stopped by what standard error tells; a script has to "
            "keep its calls below `if __name__ == '__main__':`"
        ) from None
    return answer


def _answer(sender: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    # A group of its own: Ctrl-C reaches the parent, which passes it on, once.
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    try:
        answer = _Answer(function(*args))
    except BaseException as error:
        answer = _Answer(None, _sendable(error), traceback.format_exc())
    try:
        sender.send(answer)
    except _UNSENDABLE as error:
        sender.send(_Answer(None, RuntimeError(f"The result cannot be sent back: {error}")))
    sender.close()


def _sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except _UNSENDABLE:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def check_sendable(**things: Any) -> None:
    """Refuses what another process cannot get.

    Args:
        **things: What is to be sent, by the name of the argument.

    Raises:
        InputsError: If something cannot be pickled, or is defined where no process looks.
    """
    for name, thing in things.items():
        try:
            pickle.dumps(thing)
        except _UNSENDABLE as error:
            raise InputsError(
                f"isolate=True sends {name} to another process, which cannot get it: {error}. "
                "Expected a function or arrays that can be pickled: a function on the top level "
                "of a module, and for a dataset such a function that returns it. "
                f"Received: {name}={thing!r}."
            ) from error
        is_interactive = not hasattr(sys.modules["__main__"], "__file__")
        if is_interactive and getattr(thing, "__module__", None) == "__main__":
            raise InputsError(
                f"isolate=True needs {name} in a module that another process can import. Expected "
                f"a function of a file. Received: {name}={thing!r}, defined in this session. Write "
                "it to a .py file and import it."
            )


def _warm_up() -> None:
    """Starts TensorFlow's threads and pools, which no model is to blame for."""
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    model.compile("adam", "mse")
    model.train_on_batch(np.zeros((4, 4)), np.zeros((4, 4)))
