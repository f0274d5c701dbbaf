"""The command line: parse, one call, print, exit code.

A subcommand is a module with two small functions: one that adds its parser, listed
in `_COMMANDS`, and one that takes the parsed arguments and returns the exit code.
A third, `check`, may refuse options that do not go together.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from tf_amp_kit import register_for_files
from tf_amp_kit.cli.audit import add_audit
from tf_amp_kit.cli.compare import add_compare
from tf_amp_kit.cli.demo import add_demo
from tf_amp_kit.cli.hardware import add_hardware
from tf_amp_kit.cli.memory import add_memory
from tf_amp_kit.cli.numerics import add_numerics
from tf_amp_kit.cli.plan import add_plan
from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE, EXIT_USAGE, import_tensorflow
from tf_amp_kit.cli.run import add_run
from tf_amp_kit.errors import AmpError, AmpWarning

__all__ = ["EXIT_FINDINGS", "EXIT_FINE", "EXIT_USAGE", "console_main", "main"]

_plain_format: Final = warnings.formatwarning


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand, without ever exiting the process.

    Args:
        argv: The arguments after the program's name; None takes `sys.argv`.

    Returns:
        0 if all is fine, 1 if there are findings, 2 if the command or what it
        was given cannot be used.

    Example:

    >>> exit_code = main(["hardware"])  # doctest: +ELLIPSIS
    auto: ...
    >>> exit_code == EXIT_FINE
    True
    """
    try:
        arguments = _build_parser().parse_args(argv)
        if "check" in arguments:
            arguments.check(arguments)
    except SystemExit as end:  # argparse has printed the help or the error
        return int(end.code or EXIT_FINE)
    if arguments.needs_tensorflow:
        import_tensorflow()
        register_for_files()
    try:
        return int(arguments.run(arguments))
    except AmpError as error:
        print(f"tf-amp-kit: error: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_USAGE


def console_main() -> NoReturn:
    """Is the entry point of `tf-amp-kit`: runs `main` and exits with its code."""
    warnings.formatwarning = _format_warning
    sys.exit(main())


def _format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Shows the package's own warnings without a line of its own code."""
    if issubclass(category, AmpWarning):
        return f"tf-amp-kit: warning: {message}\n"
    return _plain_format(message, category, filename, lineno, line)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message}\n")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tf-amp-kit",
        description="Mixed precision you can trust, for Keras 3 on TensorFlow.",
        epilog="Exit codes: 0 fine, 1 findings, 2 usage.",
    )
    parser.set_defaults(needs_tensorflow=True)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add_command in _COMMANDS:
        add_command(commands)
    return parser


_COMMANDS: Final[tuple[Callable[[Any], None], ...]] = (
    add_run,
    add_hardware,
    add_audit,
    add_numerics,
    add_plan,
    add_compare,
    add_memory,
    add_demo,
)
