"""Which line of the user's code stands behind an operation."""

from __future__ import annotations

import contextlib
import linecache
import os
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import tensorflow as tf

from tf_amp_kit import _keras

# Every recorded call goes through the function of this name in this file.
OBSERVED_CALL: Final = "run"
_RECORDER_FILE: Final = os.path.join(os.path.dirname(__file__), "recorder.py")

_OWN_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TENSORFLOW_FOLDER: Final = os.path.dirname(os.path.abspath(tf.__file__))
_STANDARD_LIBRARY: Final = sysconfig.get_paths()["stdlib"]
_PLUMBING_PACKAGES: Final = ("optree", "wrapt", "numpy", "tree")


class Frame(NamedTuple):
    """One line of a traceback: file, line number, function."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Source:
    """A line of code.

    Attributes:
        file: The file's path as Python reports it.
        line: The line's number, from 1.
        text: The line itself, stripped; empty where the file cannot be read.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dictionary for JSON."""
        return asdict(self)


def frames_of(traceback: Iterable[Any] | None) -> tuple[Frame, ...]:
    """Reads the frames of an operation's traceback, outermost first.

    TensorFlow has none for some operations that it inserts itself.
    """
    return tuple(Frame(frame.filename, frame.lineno, frame.name) for frame in traceback or ())


def frames_below_call(frames: Sequence[Frame], depth: int = 0) -> Sequence[Frame]:
    """Cuts a traceback down to what one observed call ran by itself.

    Args:
        frames: The traceback, outermost first.
        depth: How many observed calls are open, that call included; 0 means the
            innermost of all.

    Returns:
        The frames after that call's own and before the next observed call's.
        Outside all calls those of whoever asked for the trace are not among them.
    """
    marks = [
        index
        for index, frame in enumerate(frames)
        if frame.function == OBSERVED_CALL and frame.file == _RECORDER_FILE
    ]
    if not 1 <= depth <= len(marks):
        own = marks or [index for index, frame in enumerate(frames) if _is_ours(frame.file)]
        return frames[own[-1] + 1 :] if own else frames
    end = marks[depth] if depth < len(marks) else len(frames)
    return frames[marks[depth - 1] + 1 : end]


def source_of(frames: Sequence[Frame]) -> Source | None:
    """Finds the line that a reader would point at.

    That is the innermost frame outside Keras, TensorFlow and this package; or,
    where all of them are inside, the innermost frame of a Keras layer.

    Args:
        frames: A traceback, outermost first.

    Returns:
        The line, or None if nothing but plumbing is there.
    """
    for wanted in ("user", "layer"):
        for frame in reversed(frames):
            if _kind(frame.file) == wanted:
                return Source(
                    frame.file, frame.line, linecache.getline(frame.file, frame.line).strip()
                )
    return None


def is_user_code(file: str) -> bool:
    """Tells whether a file is outside Keras, TensorFlow, this package and Python."""
    return _kind(file) == "user"


def is_own_code(file: str) -> bool:
    """Tells whether a file belongs to this package's own machinery."""
    return _is_own_plumbing(os.path.abspath(file))


@cache
def _kind(file: str) -> str:
    """Returns `"user"`, `"layer"` (a Keras layer) or `"plumbing"`."""
    path = os.path.abspath(file) if os.path.exists(file) else file
    in_keras = _keras.kind_of_keras_code(path)
    if in_keras:
        return "layer" if in_keras == "layer" else "plumbing"
    if _is_under(path, _TENSORFLOW_FOLDER) or _is_own_plumbing(path):
        return "plumbing"
    if _is_under(path, _STANDARD_LIBRARY) and "site-packages" not in path:
        return "plumbing"
    if any(f"{os.sep}site-packages{os.sep}{name}{os.sep}" in path for name in _PLUMBING_PACKAGES):
        return "plumbing"
    return "user"


@cache
def _is_ours(file: str) -> bool:
    return _is_own_plumbing(os.path.abspath(file))


def _is_own_plumbing(path: str) -> bool:
    # The demo's layers are user code that happens to be shipped with the package.
    return _is_under(path, _OWN_FOLDER) and os.path.basename(path) != "demo.py"


def _is_under(path: str, folder: str) -> bool:
    with contextlib.suppress(ValueError):  # other drives on Windows
        return os.path.commonpath([path, folder]) == folder
    return False
