"""One run of a script under a precision, with its summary and its report."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from tf_amp_kit.errors import AmpError
from tf_amp_kit.launcher.arrival import when_imported
from tf_amp_kit.launcher.environment import VARIABLE
from tf_amp_kit.launcher.script import Script

if TYPE_CHECKING:
    from tf_amp_kit.launcher.session import Session

__all__ = ["launch"]

_EXIT_USAGE: Final = 2


def launch(
    script: Script,
    precision: str,
    level: str | None = None,
    *,
    audits: bool = False,
    report: str | None = None,
    quiet: bool = False,
) -> int:
    """Runs a script with its models in a precision.

    The precision is switched on as soon as the script imports Keras. When it ends, a
    summary goes to standard error, which leaves standard output to the script.

    Args:
        script: The script.
        precision: The precision, as `enable_amp` takes it.
        level: The level, likewise; None for the default.
        audits: Whether each model is audited.
        report: The HTML file to write a report to, if any.
        quiet: Whether the summary is left out.

    Returns:
        The script's exit code; 2 if the precision cannot be switched on.
    """
    session: Session | None = None

    def start() -> None:
        nonlocal session
        from tf_amp_kit import register_for_files
        from tf_amp_kit.launcher.session import Session

        register_for_files()
        started = Session(precision, level, audits=audits)
        try:
            started.start()
        except AmpError as error:
            # Out of the script's own import, which it then ends in.
            _say(f"error: {' '.join(str(error).split())}")
            raise SystemExit(_EXIT_USAGE) from error
        session = started

    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = precision if level is None else f"{precision}:{level}"
    try:
        with when_imported("keras", start):
            code = script.run()
        if session is not None:
            _finish(session, report, quiet=quiet)
        elif code == 0:
            _say("the script never imported Keras: there was nothing to do.")
    except SystemExit:  # Keras was imported before, so that no script was begun
        return _EXIT_USAGE
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
    return code


def _finish(session: Any, report: str | None, *, quiet: bool) -> None:
    summary = session.stop(report)
    if summary is None:
        return  # a process that the script forked off
    if report is not None:
        _write(summary, report)
    if not quiet:
        print(f"\n{summary}", file=sys.stderr)


def _write(summary: Any, report: str) -> None:
    from tf_amp_kit.launcher.section import section_of_run
    from tf_amp_kit.reporting.html import section_of, write_sections

    audits = [section_of(one.audit) for one in summary.models if one.audit is not None]
    write_sections([section_of_run(summary), *audits], report)


def _say(text: str) -> None:
    print(f"tf-amp-kit: {text}", file=sys.stderr)
