"""The circumstances under which a subcommand runs a user's own code."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Subject", "opened", "precision_scope", "users_modules"]


@dataclass(frozen=True)
class Subject:
    """A model, and data to look at it with.

    Attributes:
        model: The model.
        is_of_file: Whether it is a file's, which no `--amp` has built.
        data: The training data.
        validation: The validation data; None if there are none.
    """

    model: Any
    is_of_file: bool
    data: Any
    validation: Any


@contextlib.contextmanager
def opened(arguments: argparse.Namespace, *, needs_loss: bool) -> Iterator[Subject]:
    """Makes what the arguments name, and keeps the circumstances for looking at it.

    Args:
        arguments: They have `model`, `data`, `amp`, `json` and `quiet`.
        needs_loss: Whether a model that is not compiled is refused.
    """
    from tf_amp_kit.model_source import built_model, load_data, load_source

    with contextlib.ExitStack() as stack:
        stack.enter_context(users_modules(keeps_stdout=arguments.json, is_quiet=arguments.quiet))
        stack.enter_context(precision_scope(arguments.amp))
        source = load_source(arguments.model)
        stack.enter_context(precision_scope(arguments.amp))
        model = built_model(source, needs_loss=needs_loss)
        data, validation = load_data(arguments.data)
        stack.enter_context(precision_scope(arguments.amp))
        yield Subject(model, model is source, data, validation)


@contextlib.contextmanager
def users_modules(*, keeps_stdout: bool, is_quiet: bool) -> Iterator[None]:
    """Lets modules of the current directory be imported, and tells what takes long.

    Args:
        keeps_stdout: Whether standard output is kept for another program to read:
            what the user's code prints goes to standard error then.
        is_quiet: Whether nothing is told.
    """
    from tf_amp_kit.model_source import current_directory_importable
    from tf_amp_kit.progress import working

    with contextlib.ExitStack() as stack:
        stack.enter_context(working("Importing the model", is_shown=not is_quiet))
        if keeps_stdout:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(current_directory_importable())
        yield


def precision_scope(name: str | None) -> contextlib.AbstractContextManager[Any]:
    """Switches on what `--amp` says, if it says anything.

    Enter it once more after each import: the module may have switched on another one.
    """
    from tf_amp_kit.precision.policy import amp_scope

    return contextlib.nullcontext() if name is None else amp_scope(name)
