"""Who called: the user's own line, and objects whose methods are running."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

import keras
import tensorflow as tf

__all__ = ["running_methods_of", "stacklevel_of_user"]

_Owner = TypeVar("_Owner")

# What TensorFlow makes of a function, in a file of its own: nobody can open it later.
_MADE_OF_THE_USERS: Final = "__autograph_generated_file"

# This package, and those whose frames stand between it and the user's.
_NOT_THE_USERS: Final = (
    *(f"{Path(file).parent}{os.sep}" for file in (__file__, keras.__file__, tf.__file__)),
    contextlib.__file__,  # whose frame ends a `with` block
)


def stacklevel_of_user() -> int:
    """Gives the `stacklevel` with which the caller's warning names the user's line.

    Returns:
        The number of frames from the caller up to the first one that belongs to
        neither this package nor Keras nor TensorFlow; the outermost if all do.
    """
    level = 0
    for frame in _frames():
        level += 1
        file = frame.f_code.co_filename
        if not file.startswith(_NOT_THE_USERS) and _MADE_OF_THE_USERS not in file:
            break
    return level


def running_methods_of(kind: type[_Owner]) -> Iterator[_Owner]:
    """Finds the objects of a class, methods of which are running in this thread.

    A callback is not told which list calls it, nor an optimizer for which model.

    Args:
        kind: The class.

    Yields:
        The objects, innermost method first.
    """
    for frame in _frames():
        owner: Any = frame.f_locals.get("self")
        if isinstance(owner, kind):
            yield owner


def _frames() -> Iterator[FrameType]:
    """Walks outwards, from whoever called the function that asks."""
    frame = inspect.currentframe()
    # This generator's frame, and that of the function in this module.
    for _ in range(2):
        frame = frame.f_back if frame else None
    while frame is not None:
        yield frame
        frame = frame.f_back
