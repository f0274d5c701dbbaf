"""The variable that switches a precision on in a program that imports the package."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Final

from tf_amp_kit.errors import AmpError

if TYPE_CHECKING:
    from tf_amp_kit.launcher.session import Session

__all__ = ["VARIABLE", "start_if_asked", "value_for"]

#: Its value is a precision, with a level behind a colon if one is wanted, and behind
#: another what happens on a conflict: `bf16:O2`, `bf16::raise`.
VARIABLE: Final = "TF_AMP_KIT"


def value_for(precision: str, level: str | None, on_conflict: str | None) -> str:
    """Returns the value of the variable that asks for the same.

    Example:

    >>> value_for("bf16", "O2", None), value_for("bf16", None, "raise")
    ('bf16:O2', 'bf16::raise')
    """
    return f"{precision}:{level or ''}:{on_conflict or ''}".rstrip(":")


def start_if_asked() -> None:
    """Switches on what the environment asks for, if it does, until the process ends.

    The summary goes to standard error.

    Raises:
        AmpError: As `enable_amp` does.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if not value:
        return
    from tf_amp_kit.launcher.session import DEFAULT_ON_CONFLICT, Session

    name, level, on_conflict = (*value.split(":", 2), "", "")[:3]
    try:
        session = Session(name, level or None, on_conflict=on_conflict or DEFAULT_ON_CONFLICT)
        session.start()
    except AmpError as error:
        raise type(error)(
            f"The environment variable {VARIABLE} asks for what there is not: {error}"
        ) from None
    atexit.register(_tell, session)


def _tell(session: Session) -> None:
    summary = session.stop()
    if summary is not None and summary.models:
        print(f"\n{summary}", file=sys.stderr)
