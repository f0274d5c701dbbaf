"""Replacing attributes of classes and modules for a while, in several threads at once."""

from __future__ import annotations

import contextlib
import threading
import weakref
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
        self._scopes: set[weakref.ref[_Scope]] = set()
        self._original: Any = None
        self._replacement: Any = None

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Installs the replacement for the time of a `with` block."""
        # An interruption may come between any two lines. One that comes on the way out may
        # leave the replacement, which nothing uses, and the next one out takes it away.
        scope = _Scope()
        reference = weakref.ref(scope)
        try:
            with _patch_lock:
                self._forget_the_gone()
                present = self.owner.__dict__[self.name]
                if not self._scopes and present is not self._replacement:
                    self._original, self._replacement = present, self.make(present)
                self._scopes.add(reference)
                if len(self._scopes) == 1:
                    setattr(self.owner, self.name, self._replacement)
            yield
        finally:
            # Without a call of Python code, in which most interruptions would come.
            with _patch_lock:
                self._scopes.discard(reference)
                # Somebody else's patch stays, with this one inert below it.
                is_on_top = vars(self.owner).get(self.name, self) is self._replacement
                if is_on_top and not self._scopes:
                    setattr(self.owner, self.name, self._original)

    def _forget_the_gone(self) -> None:
        """Drops scopes that ended without saying so."""
        self._scopes -= {one for one in self._scopes if one() is None}


class _Scope:
    """One `with` block that needs a patch; gone with its frame, however that ends."""


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
