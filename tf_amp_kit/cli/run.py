"""`tf-amp-kit run`."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
from typing import Any, Final

from tf_amp_kit.cli.options import output_file
from tf_amp_kit.errors import PrecisionError
from tf_amp_kit.launcher.launch import launch
from tf_amp_kit.launcher.script import Script

__all__ = ["add_run"]

_AUTO: Final = "auto"


def add_run(commands: Any) -> None:
    """Adds the parser of `run`."""
    parser = commands.add_parser(
        "run",
        help="a training script under mixed precision, unchanged",
        description="Runs a script with its models in half precision: the policy in every "
        "thread and after clear_session(), the level's layers pinned in float32, loss scaling "
        "where float16 needs it, and AmpMonitor in fit. A policy that the script sets itself "
        "wins. Then a summary goes to standard error.",
        epilog="Exits with the script's code. Processes that the script starts anew, by spawn, "
        "run as without this, unless they import tf_amp_kit, which reads the precision from "
        "the environment variable TF_AMP_KIT; forked ones run as the script does. A model that was "
        "compiled in float16 is saved with an optimizer of this package: import tf_amp_kit to load "
        "it, or load it with compile=False.",
        usage="%(prog)s [options] script.py [arguments ...]\n"
        "       %(prog)s [options] -m module [arguments ...]",
    )
    parser.add_argument(
        "--amp",
        metavar="PRECISION",
        type=_precision,
        default=_AUTO,
        help="bf16, fp16, fp32, or auto for what this machine runs fast (default: auto)",
    )
    parser.add_argument("--level", choices=("O0", "O1", "O2", "O3"), help="(default: O1)")
    parser.add_argument(
        "--on-conflict",
        choices=("float32", "raise"),
        help="what happens to a layer that fails in half precision: it runs in float32, or "
        "raises (default: float32)",
    )
    parser.add_argument(
        "--audit", action="store_true", help="look at what each model really computes in"
    )
    parser.add_argument(
        "--report", metavar="FILE", type=output_file, help="write an HTML page of what was found"
    )
    parser.add_argument("--quiet", action="store_true", help="leave the summary out")
    parser.add_argument(
        "-m", dest="is_module", action="store_true", help="run a module, as python -m does"
    )
    parser.add_argument("target", metavar="script.py", help="the script, or the module after -m")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="what the script finds in sys.argv"
    )
    parser.set_defaults(run=_run, check=functools.partial(_check, parser), needs_tensorflow=False)


def _run(options: argparse.Namespace) -> int:
    return launch(
        Script(options.target, tuple(options.arguments), options.is_module),
        options.amp,
        options.level,
        audit=_audit if options.audit else None,
        # The script may go elsewhere.
        report=options.report and os.path.abspath(options.report),
        quiet=options.quiet,
        on_conflict=options.on_conflict,
    )


def _audit(model: Any) -> Any:
    """Audits a model under the project's settings, as `tf-amp-kit audit` does."""
    from tf_amp_kit.cli.settings import read_settings
    from tf_amp_kit.inspection.audit import audit_layer_dtypes

    return read_settings().applied_to(audit_layer_dtypes(model, verbose=0))


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if not options.is_module and not os.path.isfile(options.target):
        parser.error(f"there is no file {options.target!r}; a module comes after -m")
    if options.report and importlib.util.find_spec("jinja2") is None:
        parser.error('--report needs jinja2: pip install "tf_amp_kit[html]"')


def _precision(text: str) -> str:
    from tf_amp_kit.formats import parse_precision  # with NumPy, which the help does without

    try:
        parse_precision(text, also=(_AUTO,))
    except PrecisionError as error:
        raise argparse.ArgumentTypeError(" ".join(str(error).split())) from None
    return text
