"""What was asked for: one record for the process, and scopes that win over it.

Keras keeps its global dtype policy per thread, and `clear_session()` resets it.
The record here belongs to the process and survives both, so that an audit can
tell that a model was built under something else than what was asked for.

Two facts rule the design of the scopes:

- A context variable can leave its scope: a task that was started inside still
  sees the old value. An entry therefore holds its scope, and counts only as
  long as that scope is open.
- Generators and tasks close their scopes in any order. What a scope has to
  restore is therefore handed on when a scope below it closes first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import keras

if TYPE_CHECKING:
    from tf_amp_kit.precision.pinning.pins import Pins

__all__ = ["AmpState", "current", "entered", "forget", "switch_off", "switch_on"]


@dataclass(frozen=True)
class AmpState:
    """A precision that was asked for, and what Keras was told because of it.

    Args:
        precision: `"float16"`, `"bfloat16"` or `"float32"`.
        level: `"O0"` to `"O3"`; float32 is always `"O0"`.
        pins: What `pin_float32` pins instead of the level's layers, or None.
        requested: What the caller wrote, `"auto"` for example. Two states that
            differ only in this are equal.

    Example:

    >>> print(AmpState("bfloat16", "O1"))
    bfloat16, level O1, Keras policy mixed_bfloat16
    """

    precision: str
    level: str
    pins: Pins | None = field(default=None, repr=False, kw_only=True)
    requested: str = field(default="", compare=False)

    @property
    def policy_name(self) -> str:
        """The name of the Keras dtype policy that this state stands for."""
        if self.level in ("O0", "O3"):
            return self.precision
        return f"mixed_{self.precision}"

    def to_dict(self) -> dict[str, str]:
        """Gives the state as plain strings, for JSON and for reports."""
        return {
            "precision": self.precision,
            "level": self.level,
            "policy_name": self.policy_name,
            "requested": self.requested,
        }

    def __str__(self) -> str:
        return f"{self.precision}, level {self.level}, Keras policy {self.policy_name}"


@dataclass(frozen=True)
class _Record:
    """What is recorded for the process, and the policy to go back to."""

    state: AmpState
    policy_before: keras.DTypePolicy


@dataclass(eq=False)
class _Scope:
    """One open `amp_scope`, on the thread that entered it."""

    policy_before: keras.DTypePolicy
    thread_scopes: list[_Scope]
    is_open: bool = True


@dataclass(frozen=True)
class _Entry:
    """What a context sees of a scope; `state` is None after a switch-off."""

    state: AmpState | None
    scope: _Scope
    outer: _Entry | None


class _ThreadScopes(threading.local):
    """The scopes that a thread has open, outermost first."""

    def __init__(self) -> None:
        self.scopes: list[_Scope] = []


_entry: Final[ContextVar[_Entry | None]] = ContextVar("tf_amp_kit_scope", default=None)
_thread: Final = _ThreadScopes()
_lock: Final = threading.Lock()
_record: _Record | None = None


def current() -> AmpState | None:
    """Returns the innermost open scope's state, else the process's, else None."""
    entry = _open_entry()
    if entry is not None:
        return entry.state
    record = _record
    return record.state if record is not None else None


def switch_on(state: AmpState) -> None:
    """Records a state, and sets the calling thread's Keras policy.

    Inside a scope, both last until that scope ends; elsewhere the record is
    the process's.

    Args:
        state: The validated state.
    """
    entry = _open_entry()
    if entry is not None:
        _entry.set(replace(entry, state=state))
    else:
        _record_for_process(state)
    keras.config.set_dtype_policy(state.policy_name)


def switch_off() -> None:
    """Forgets what was asked for, and restores the Keras policy from before.

    Inside a scope, this lasts until that scope ends. Where nothing was asked
    for, nothing changes.
    """
    global _record
    entry = _open_entry()
    with _lock:
        record = _record
        if entry is None:
            _record = None
    if record is not None:
        keras.config.set_dtype_policy(record.policy_before)
        if entry is None and _thread.scopes:
            _thread.scopes[0].policy_before = record.policy_before
    elif entry is not None:
        keras.config.set_dtype_policy(entry.scope.thread_scopes[0].policy_before)
    if entry is not None:
        _entry.set(replace(entry, state=None))


@contextmanager
def entered(state: AmpState) -> Iterator[AmpState]:
    """Makes a state the current one, and restores Keras and us at the end.

    Args:
        state: The validated state.

    Yields:
        The same state.
    """
    scope = _Scope(keras.config.dtype_policy(), _thread.scopes)
    scope.thread_scopes.append(scope)
    try:
        _entry.set(_Entry(state, scope, _open_entry()))
        keras.config.set_dtype_policy(state.policy_name)
        yield state
    finally:
        _close(scope)


def forget() -> None:
    """Clears the process's record without touching Keras; meant for tests."""
    global _record
    with _lock:
        _record = None


def _open_entry() -> _Entry | None:
    entry = _entry.get()
    while entry is not None and not entry.scope.is_open:
        entry = entry.outer
    return entry


def _record_for_process(state: AmpState) -> None:
    global _record
    scopes = _thread.scopes
    with _lock:
        if _record is not None:
            before = _record.policy_before
        elif scopes:
            # Another context of this thread has a scope open, so Keras's
            # policy is that scope's and not what the program started from.
            before = scopes[0].policy_before
        else:
            before = keras.config.dtype_policy()
        _record = _Record(state, before)
    if scopes:
        scopes[0].policy_before = keras.DTypePolicy(state.policy_name)


def _close(scope: _Scope) -> None:
    scope.is_open = False
    scopes = scope.thread_scopes
    position = scopes.index(scope)
    del scopes[position]
    if position < len(scopes):
        scopes[position].policy_before = scope.policy_before
    elif scopes is _thread.scopes:
        # An abandoned generator may be closed on another thread, whose policy
        # is none of this scope's business.
        keras.config.set_dtype_policy(scope.policy_before)
    _entry.set(_open_entry())
