"""What every subcommand does to its process: how it exits, how TensorFlow starts."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

__all__ = ["EXIT_FINDINGS", "EXIT_FINE", "EXIT_INTERRUPTED", "EXIT_USAGE", "import_tensorflow"]

EXIT_FINE: Final = 0
EXIT_FINDINGS: Final = 1
EXIT_USAGE: Final = 2
# What shells give a process that Ctrl-C ended: 128 and the number of SIGINT.
EXIT_INTERRUPTED: Final = 130

_LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
# Warnings and below are left out.
_QUIET: Final = "2"


def import_tensorflow() -> None:
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
