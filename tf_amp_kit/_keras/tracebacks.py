"""Private names about tracebacks: all frames, and autograph's original lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf


@contextlib.contextmanager
def full_tracebacks() -> Iterator[None]:
    """Keeps the frames of Keras and TensorFlow in tracebacks, in this thread.

    The switches are public; they stand here with what else is about tracebacks.
    """
    keras_filters = keras.config.is_traceback_filtering_enabled()
    tf_filters = tf.debugging.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()
    tf.debugging.disable_traceback_filtering()
    try:
        yield
    finally:
        if keras_filters:
            keras.config.enable_traceback_filtering()
        if tf_filters:
            tf.debugging.enable_traceback_filtering()


def stack_frames() -> Any:
    """Returns this thread's stack, outermost first, with lines that the user wrote.

    Uses `tensorflow.python.util.tf_stack.extract_stack`: under autograph the
    running code stands in a temporary file, and only this function knows where
    it comes from. The frames are read when they are looked at.
    """
    from tensorflow.python.util import tf_stack

    return tf_stack.extract_stack()


def autograph_error(error: BaseException) -> tuple[str, tuple[tuple[str, int, str], ...]] | None:
    """Returns what autograph knows of an error that passed through it.

    Uses the attribute `ag_error_metadata`: the traceback points into a temporary
    file, and the message is one long text.

    Args:
        error: What was raised.

    Returns:
        The original message, and the frames (file, line, function) in the user's
        files, outermost first; None where autograph was not involved.
    """
    # Keras raises some errors anew, with a text around the first one's.
    current: BaseException | None = error
    while current is not None and not hasattr(current, "ag_error_metadata"):
        current = current.__cause__ or current.__context__
    if current is None:
        return None
    metadata = current.ag_error_metadata
    frames = [
        (frame.filename, frame.lineno, frame.function_name)
        for frame in reversed(metadata.translated_stack)
    ]
    _, _, message = metadata.cause_message.partition(": ")  # the class comes first
    return message, tuple(frames)
