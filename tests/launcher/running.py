"""Runs scripts by the command line: in this process, or in one of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tf_amp_kit.cli import main

SCRIPTS = Path(__file__).parent / "scripts"
ROOT = Path(__file__).parents[2]
RUN = ("-m", "tf_amp_kit", "run", "--quiet", "--amp", "bf16")

# What TensorFlow and Python's processes say on standard error, whoever starts them.
_CHATTER = re.compile(r"^(WARNING: All log|[IWE]\d{4} |To enable the following|.*absl::Init)")


class Ran(NamedTuple):
    """What a script printed, the last text on standard error among it, and its exit code."""

    code: int
    lines: list[str]
    summary: str


def run_here(
    capfd: pytest.CaptureFixture[str], *options: str, script: str, arguments: tuple[str, ...] = ()
) -> Ran:
    """Runs a script by `main`, in this process."""
    code = main(["run", *options, str(SCRIPTS / script), *arguments])
    out, err = capfd.readouterr()
    start = err.find("Ran in")
    return Ran(code, out.splitlines(), err[start:] if start >= 0 else err)


def run_apart(
    *words: str, stdin: str = "", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python on words, in a process of its own, and drops TensorFlow's chatter."""
    ran = subprocess.run(
        [sys.executable, *words],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=SCRIPTS,
        timeout=120,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}
        | (environment or {}),
    )
    kept = [line for line in ran.stderr.splitlines() if not _CHATTER.match(line)]
    ran.stderr = "\n".join(kept)
    return ran
