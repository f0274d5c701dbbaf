"""`tf-amp-kit hardware`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tf_amp_kit.cli.options import add_json
from tf_amp_kit.cli.process import EXIT_FINE

__all__ = ["add_hardware"]


def add_hardware(commands: Any) -> None:
    """Adds the parser of `hardware`."""
    parser = commands.add_parser(
        "hardware",
        help="what this machine runs fast, and why",
        description="Lists each device, what it runs fast, and what auto picks.",
    )
    add_json(parser)
    parser.set_defaults(run=_run_hardware)


def _run_hardware(arguments: argparse.Namespace) -> int:
    from tf_amp_kit.hardware import detect_hardware

    hardware = detect_hardware(thorough=True)
    print(json.dumps(hardware.to_dict(), indent=2) if arguments.json else hardware)
    return EXIT_FINE
