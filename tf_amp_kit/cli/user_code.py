"""The circumstances under which a subcommand runs a user's own code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["precision_scope", "users_modules"]


@contextlib.contextmanager
def users_modules(*, is_json: bool) -> Iterator[None]:
    """Lets modules of the current directory be imported.

    Args:
        is_json: Whether standard output is kept for JSON: what the user's code
            prints goes to standard error then.
    """
    from tf_amp_kit.model_source import current_directory_importable

    with contextlib.ExitStack() as stack:
        if is_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(current_directory_importable())
        yield


def precision_scope(name: str | None) -> contextlib.AbstractContextManager[Any]:
    """Switches on what `--amp` says, if it says anything.

    Enter it once more after each import: the module may have switched on another one.
    """
    from tf_amp_kit.precision.policy import amp_scope

    return contextlib.nullcontext() if name is None else amp_scope(name)
