"""Doing something as soon as a module was imported, by whomever."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["when_imported"]


@contextlib.contextmanager
def when_imported(name: str, act: Callable[[], None]) -> Iterator[None]:
    """Calls a function once after a module's import in a `with` block, or at once.

    What a script sets in the environment before it imports TensorFlow still counts
    then.

    Args:
        name: The full name of the module.
        act: Takes nothing. What it raises comes out of the import.
    """
    if name in sys.modules:
        act()
        yield
        return
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.leave()


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find a module, and adds a call to its execution."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name, self._act = name, act
        self._is_asking = False

    def leave(self) -> None:
        """Goes, if it has not gone already."""
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Returns the others' spec of the module, None for any other one."""
        if fullname != self._name or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # Only now: many look for the module, TensorFlow among them, and do not import it.
            self.leave()
            execute(module)
            self._act()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
