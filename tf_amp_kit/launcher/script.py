"""Running a script or a module as Python itself would run it."""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import sys
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

__all__ = ["Script"]

_EXIT_FAILED: Final = 1
_EXIT_INTERRUPTED: Final = 130

_PACKAGE: Final = Path(__file__).parent.parent
# Frames of these files are none of the script's.
_OWN_FILES: Final = (
    str(_PACKAGE / "launcher"),
    str(_PACKAGE / "_keras" / "training.py"),
    runpy.__file__,
    "<frozen runpy>",
)


@dataclass(frozen=True)
class Script:
    """A program: a file, or a module as for `python -m`.

    Attributes:
        target: The file, or the name of the module.
        arguments: What comes after it.
        is_module: Whether it is the name of a module.
    """

    target: str
    arguments: Sequence[str] = ()
    is_module: bool = False

    def run(self, at_end: Callable[[int], None]) -> int:
        """Runs it as `__main__`, and waits for its threads.

        `sys.argv`, `sys.path[0]`, `__main__`, its traceback and its exit code are what they
        are under Python itself.

        Args:
            at_end: Called with the exit code when all is over, as long as what the script
                made is there.

        Returns:
            The exit code.
        """
        before = sys.argv, sys.path[:], sys.modules["__main__"]
        sys.argv = [self.target, *self.arguments]
        module = types.ModuleType("__main__")
        try:
            code = self._exit_code(module)
            _wait_for_threads()
            at_end(code)
            return code
        finally:
            sys.argv, sys.path[:], sys.modules["__main__"] = before

    def _exit_code(self, module: ModuleType) -> int:
        try:
            if self.is_module:
                _replace_first_path(os.getcwd())
                made = runpy.run_module(self.target, run_name="__main__", alter_sys=True)
                # Threads that go on find what the module made.
                vars(module).update(made)
                sys.modules["__main__"] = module
            else:
                _run_file(self.target, module)
        except SystemExit as end:
            return _code_of(end)
        except KeyboardInterrupt as error:
            _show(error)
            return _EXIT_INTERRUPTED
        except BaseException as error:
            _show(error)
            return _EXIT_FAILED
        return 0


def _run_file(target: str, module: ModuleType) -> None:
    # As Python does: absolute, so that a change of directory does not matter.
    path = os.path.abspath(target)
    _replace_first_path(os.path.dirname(os.path.realpath(path)))
    with io.open_code(path) as file:
        source = file.read()
    module.__file__ = path
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    vars(module).update(__builtins__=builtins, __annotations__={}, __cached__=None)
    sys.modules["__main__"] = module
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def _replace_first_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0:1] = [folder]


def _code_of(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return _EXIT_FAILED


def _show(error: BaseException) -> None:
    """Shows an error as Python does, without the frames that called the script."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        one.__traceback__ = _without_own_frames(one.__traceback__)
        one = one.__cause__ or one.__context__
    sys.excepthook(type(error), error, error.__traceback__)


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    frames: list[Any] = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_OWN_FILES):
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for one in reversed(frames):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def _wait_for_threads() -> None:
    """Waits as Python does before it ends: threads may go on training."""
    current = threading.current_thread()
    while others := [one for one in threading.enumerate() if one is not current and not one.daemon]:
        for one in others:
            one.join()
