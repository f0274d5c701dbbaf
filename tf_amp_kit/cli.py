"""The command line: parse, one call, print, exit code.

A subcommand is two small functions: one that adds its parser, listed in
`_COMMANDS`, and one that takes the parsed arguments and returns the exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

from tf_amp_kit import register_for_files
from tf_amp_kit.errors import AmpError, AmpWarning, InputsError, ModelError

__all__ = ["EXIT_FINDINGS", "EXIT_FINE", "EXIT_USAGE", "console_main", "main"]

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2

_LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
# Warnings and below are left out.
_QUIET: Final = "2"

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
    except SystemExit as end:  # argparse has printed the help or the error
        return int(end.code or EXIT_FINE)
    _import_tensorflow()
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


def _import_tensorflow() -> None:
    """Imports TensorFlow without the lines that it logs before it reads its log level.

    They would drown an error that is one line. Who sets a talkative level sees them.
    """
    wants_them = os.environ.setdefault(_LOG_LEVEL, _QUIET) < _QUIET
    if "tensorflow" in sys.modules or wants_them:
        return
    sys.stderr.flush()
    # By descriptor, because the lines come from C++ and pass `sys.stderr` by.
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        importlib.import_module("tensorflow")
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


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


def _add_audit(commands: Any) -> None:
    parser = commands.add_parser(
        "audit",
        help="what every layer of a model really computes in",
        description="Traces a model and reports layers that silently leave half precision.",
        epilog="Exits 1 on findings that --fail-on counts, 2 if there is no model to look at. "
        "An exception of the builder's own keeps its traceback.",
    )
    parser.add_argument("model", help="a .keras file, or package.module:builder")
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        help="bf16, fp16, fp32 or auto: what a builder runs under and a file should be in",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--ignore",
        metavar="CODE",
        type=_finding_codes,
        nargs="+",
        action="extend",
        default=[],
        help="codes to leave out, AMP203 for example; after the model",
    )
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning", "note"),
        default="warning",
        help="the least grave finding that counts (default: %(default)s)",
    )
    parser.add_argument(
        "--input-shape",
        metavar="SHAPE",
        type=_input_spec,
        action="append",
        help="28,28,1 or 16:int32, without the batch; once per input of a subclassed model",
    )
    parser.set_defaults(run=_run_audit)


def _run_audit(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.inspection.audit import audit_layer_dtypes
    from tf_amp_kit.model_source import current_directory_importable, load_source

    shapes = arguments.input_shape
    with contextlib.ExitStack() as stack:
        if arguments.json:  # what a builder prints is no JSON
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(current_directory_importable())
        stack.enter_context(_precision(arguments.amp))
        source = load_source(arguments.model)
        # Once more, because the module may have switched on another one.
        stack.enter_context(_precision(arguments.amp))
        stack.enter_context(_input_shape_named())
        report = audit_layer_dtypes(
            source,
            inputs=shapes[0] if shapes and len(shapes) == 1 else shapes,
            ignore=[code for codes in arguments.ignore for code in codes],
            verbose=0,
        )
    print(report.to_json() if arguments.json else report)
    return EXIT_FINDINGS if report.findings_at_least(arguments.fail_on) else EXIT_FINE


def _precision(name: str | None) -> contextlib.AbstractContextManager[Any]:
    from tf_amp_kit.precision.policy import amp_scope

    return contextlib.nullcontext() if name is None else amp_scope(name)


@contextlib.contextmanager
def _input_shape_named() -> Iterator[None]:
    """Names the option where an error names the argument `inputs=`."""
    try:
        yield
    except (InputsError, ModelError) as error:
        if "inputs=" not in str(error):
            raise
        raise type(error)(f"{error} Here: --input-shape 28,28,1.") from error


def _finding_codes(text: str) -> list[str]:
    _import_tensorflow()
    from tf_amp_kit.inspection.findings import CODES

    codes = text.split(",")
    unknown = [code for code in codes if code not in CODES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown code {unknown[0]!r}, expected some of {[*CODES]}"
        )
    return codes


def _input_spec(text: str) -> Any:
    _import_tensorflow()
    import tensorflow as tf

    sizes, _, dtype = text.partition(":")
    try:
        shape = [None if size == "None" else int(size) for size in sizes.split(",")]
        return tf.TensorSpec([None, *shape], dtype or "float32")
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no shape, expected 28,28,1 or 16:int32, for example"
        ) from None


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="enable, audit, fix and train a small network",
        description="Finds and fixes a layer that silently leaves half precision, and compares "
        "the score with float32. Needs scikit-learn, whose digits it learns to read.",
    )
    parser.add_argument(
        "--amp", metavar="PRECISION", default="bf16", help="bf16 (default), fp16 or auto"
    )
    parser.set_defaults(run=_run_demo)


def _run_demo(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.demo import run_demo

    return EXIT_FINE if run_demo(arguments.amp) else EXIT_FINDINGS


_COMMANDS: Final[tuple[Callable[[Any], None], ...]] = (_add_hardware, _add_audit, _add_demo)
