"""`tf-amp-kit demo`."""

from __future__ import annotations

import argparse
from typing import Any

from tf_amp_kit.cli.process import EXIT_FINDINGS, EXIT_FINE

__all__ = ["add_demo"]


def add_demo(commands: Any) -> None:
    """Adds the parser of `demo`."""
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
