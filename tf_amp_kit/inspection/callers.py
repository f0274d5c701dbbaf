"""Who called a callback: the list that it stands in, and the user's own line."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import keras

__all__ = ["stacklevel_of_user", "stand_first"]

_OWN: Final = f"{Path(__file__).parents[1]}{os.sep}"
_NOT_THE_USERS: Final = (_OWN, f"{Path(keras.__file__).parent}{os.sep}")


def stand_first(callback: Any) -> None:
    """Moves a callback to the front of the list that is calling it right now.

    What a callback puts into the logs of an epoch, only the ones behind it see,
    and Keras tells no callback which list it is in. Called outside of a list,
    it does nothing.

    Args:
        callback: A `keras.callbacks.Callback`, from within one of its methods.
    """
    for frame in _frames():
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.callbacks.CallbackList):
            others = [one for one in owner.callbacks if one is not callback]
            if len(others) < len(owner.callbacks):
                # A new list: the present one is being walked through.
                owner.callbacks = [callback, *others]
                return


def stacklevel_of_user() -> int:
    """Gives the `stacklevel` with which the caller's warning names the user's line.

    Returns:
        The number of frames from the caller up to the first one that belongs
        neither to this package nor to Keras; the outermost if all do.
    """
    level = 0
    for frame in _frames():
        level += 1
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            break
    return level


def _frames() -> Iterator[FrameType]:
    """Walks outwards, from whoever called the function that asks."""
    frame = inspect.currentframe()
    # A generator's frame, and that of the function in this module.
    for _ in range(2):
        frame = frame.f_back if frame else None
    while frame is not None:
        yield frame
        frame = frame.f_back
