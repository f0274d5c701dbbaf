"""The command line: parse, one call, print, exit code.

A subcommand is two small functions: one that adds its parser, listed in
`_COMMANDS`, and one that takes the parsed arguments and returns the exit code.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from tf_amp_kit.errors import AmpError

__all__ = ["EXIT_FINDINGS", "EXIT_FINE", "EXIT_USAGE", "console_main", "main"]

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2


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
    except SystemExit as end:  # argparse has printed the help or the error
        return int(end.code or EXIT_FINE)
    try:
        return int(arguments.run(arguments))
    except AmpError as error:
        print(f"tf-amp-kit: error: {error}", file=sys.stderr)
        return EXIT_USAGE


def console_main() -> NoReturn:
    """Is the entry point of `tf-amp-kit`: runs `main` and exits with its code."""
    sys.exit(main())


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tf-amp-kit",
        description="Mixed precision you can trust, for Keras 3 on TensorFlow.",
        epilog="Exit codes: 0 fine, 1 findings, 2 usage.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add_command in _COMMANDS:
        add_command(commands)
    return parser


def _add_hardware(commands: Any) -> None:
    parser = commands.add_parser(
        "hardware",
        help="what this machine runs fast, and why",
        description="Lists each device, what it runs fast, and what auto picks.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=_run_hardware)


def _run_hardware(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.hardware import detect_hardware

    hardware = detect_hardware(thorough=True)
    print(json.dumps(hardware.to_dict(), indent=2) if arguments.json else hardware)
    return EXIT_FINE


_COMMANDS: Final[tuple[Callable[[Any], None], ...]] = (_add_hardware,)
