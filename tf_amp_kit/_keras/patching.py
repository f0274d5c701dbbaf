"""Replacing attributes of classes and modules for a while, in several threads at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import ModuleType
from typing import Any

_patch_lock = threading.RLock()


class ClassPatch:
    """Replaces one attribute of a class, or of a module, while at least one scope needs it.

    Scopes may overlap in several threads: the first one in installs the
    replacement, the last one out puts the original back.

    Args:
        owner: The class or module.
        name: The attribute's name.
        make: Takes the original and returns the replacement.
    """

    def __init__(self, owner: type | ModuleType, name: str, make: Callable[[Any], Any]) -> None:
        self.owner, self.name, self.make = owner, name, make
        self._scopes: set[object] = set()
        self._original: Any = None
        self._replacement: Any = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Installs the replacement for the time of a `with` block."""
        # An interruption may come between any two lines.
        scope = object()
        try:
            with _patch_lock:
                if not self._scopes:
                    self._original = self.owner.__dict__[self.name]
                    self._replacement = self.make(self._original)
                self._scopes.add(scope)
                if len(self._scopes) == 1:
                    setattr(self.owner, self.name, self._replacement)
            yield
        finally:
            with _patch_lock:
                is_last = self._scopes == {scope}
                self._scopes.discard(scope)
                # Somebody else's patch stays, with this one inert below it.
                if is_last and self.owner.__dict__.get(self.name) is self._replacement:
                    setattr(self.owner, self.name, self._original)


@contextlib.contextmanager
def context_value(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Sets a context variable for the time of a `with` block.

    Args:
        variable: The variable.
        value: Its value inside.
    """
    token = variable.set(value)
    try:
        yield
    finally:
        # A generator may be closed in another context, which has nothing to reset.
        with contextlib.suppress(ValueError):
            variable.reset(token)
