"""A precision for all models of a process, from beginning to end."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import keras

from tf_amp_kit import _keras
from tf_amp_kit.errors import AmpWarning
from tf_amp_kit.formats import is_half
from tf_amp_kit.launcher.models import Audit, Companion
from tf_amp_kit.launcher.summary import RunSummary
from tf_amp_kit.precision import state
from tf_amp_kit.precision.curing.calls import Curing
from tf_amp_kit.precision.curing.scope import curing
from tf_amp_kit.precision.policy import disable_amp, enable_amp
from tf_amp_kit.precision.request import FLOAT32, RAISE, check_on_conflict
from tf_amp_kit.tables import some

__all__ = ["DEFAULT_ON_CONFLICT", "Session"]

#: A script that runs without the launcher shall run with it.
DEFAULT_ON_CONFLICT: Final = FLOAT32


class Session:
    """Switches a precision on, and goes along with every model that is compiled.

    It holds in every thread and after `clear_session()`. A policy that the script sets
    itself wins.

    Args:
        name: The precision, as `enable_amp` takes it.
        level: The level, likewise; None for the default.
        audit: Audits a model; None if none is to be audited.
        on_conflict: What happens to layers that fail in half precision, as in `amp_scope`.
    """

    def __init__(
        self,
        name: str,
        level: str | None = None,
        audit: Audit | None = None,
        on_conflict: str = DEFAULT_ON_CONFLICT,
    ) -> None:
        check_on_conflict(on_conflict)
        self._name, self._level, self._audit = name, level, audit
        self._on_conflict = on_conflict
        self._curing: Curing | None = None
        self._stack = contextlib.ExitStack()
        self._companions: WeakKeyDictionary[Any, Companion] = WeakKeyDictionary()
        self._all: list[Companion] = []
        self._own_policies: dict[str, None] = {}
        self._process = os.getpid()

    def start(self) -> None:
        """Switches it on.

        Raises:
            AmpError: As `enable_amp` does.
        """
        options = {} if self._level is None else {"level": self._level}
        # Not the script's warnings: it may have made errors of those.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", AmpWarning)
            self._asked = enable_amp(self._name, **options)
        self._doubts = tuple(str(one.message) for one in caught)
        with contextlib.ExitStack() as stack:
            stack.callback(disable_amp)
            stack.enter_context(_keras.default_policy_chosen(_chosen_policy))
            if self._on_conflict != RAISE:
                self._curing = stack.enter_context(curing(in_every_thread=True))
            stack.enter_context(_keras.training_accompanied(self._compile, self._fit))
            self._stack = stack.pop_all()

    def stop(self, report: str | None = None, exit_code: int = 0) -> RunSummary | None:
        """Switches it off.

        Args:
            report: The file that a report will be in, if any.
            exit_code: What the script ended with.

        Returns:
            What there is to tell; None in a process that was forked off.
        """
        if os.getpid() != self._process:
            return None
        models = tuple(one.summary() for one in self._all)
        self._stack.close()
        cured = [] if self._curing is None else self._curing.told()
        notes = (
            self._doubts
            + tuple(_pinned_for(cured))
            + tuple(
                f"The script set its own policy, {name!r}, which was left alone."
                for name in self._own_policies
            )
        )
        asked = self._asked
        if not models and is_half(asked.precision):
            notes += ("No model was compiled: nothing is pinned, and no loss is scaled.",)
        return RunSummary(
            self._name, asked.precision, asked.level, models, notes, report, exit_code
        )

    def _compile(self, call: Callable[..., Any], model: Any, arguments: dict[str, Any]) -> None:
        policy = keras.config.dtype_policy().name
        if policy != self._asked.policy_name:
            self._own_policies[policy] = None
        companion = self._companions.get(model)
        if companion is None:
            companion = Companion(model, self._audit, self._curing)
            self._companions[model] = companion
            self._all.append(companion)
        companion.compile(call, arguments)

    def _fit(self, call: Callable[..., Any], model: Any, arguments: dict[str, Any]) -> Any:
        companion = self._companions.get(model)
        return call(**arguments) if companion is None else companion.fit(call, arguments)


def _pinned_for(cured: Sequence[str]) -> Iterator[str]:
    """Says which layers were pinned because they fail in half precision."""
    if cured:
        shown = some(cured).replace("'", "")
        yield f"Pinned, because they fail in half precision: {shown}."


def _chosen_policy() -> str | None:
    asked = state.current()
    return None if asked is None else asked.policy_name
