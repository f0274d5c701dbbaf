"""The variable that switches a precision on in a program that imports the package."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING, Final

from tf_amp_kit.errors import AmpError

if TYPE_CHECKING:
    from tf_amp_kit.launcher.session import Session

__all__ = ["VARIABLE", "start_if_asked"]

#: Its value is a precision, with a level behind a colon if one is wanted: `bf16:O2`.
VARIABLE: Final = "TF_AMP_KIT"


def start_if_asked() -> None:
    """Switches on what the environment asks for, if it does, until the process ends.

    The summary goes to standard error.

    Raises:
        AmpError: As `enable_amp` does.
    """
    value = os.environ.get(VARIABLE, "").strip()
    if not value:
        return
    from tf_amp_kit.launcher.session import Session

    name, _, level = value.partition(":")
    session = Session(name, level or None)
    try:
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
