"""One run of a script under a precision, with its summary and its report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tf_amp_kit.errors import AmpError
from tf_amp_kit.launcher.arrival import when_imported
from tf_amp_kit.launcher.environment import VARIABLE, value_for
from tf_amp_kit.launcher.script import Script

if TYPE_CHECKING:
    from tf_amp_kit.launcher.models import Audit
    from tf_amp_kit.launcher.session import Session
    from tf_amp_kit.launcher.summary import RunSummary

__all__ = ["launch"]

_EXIT_USAGE: Final = 2


def launch(
    script: Script,
    precision: str,
    level: str | None = None,
    *,
    audit: Audit | None = None,
    report: str | None = None,
    quiet: bool = False,
    on_conflict: str | None = None,
) -> int:
    """Runs a script with its models in a precision.

    The precision is switched on as soon as the script imports Keras. When it ends, a
    summary goes to standard error, which leaves standard output to the script.

    Args:
        script: The script.
        precision: The precision, as `enable_amp` takes it.
        level: The level, likewise; None for the default.
        audit: Audits a model, once Keras is there; None if none is to be audited.
        report: The HTML file to write a report to, if any.
        quiet: Whether the summary is left out.
        on_conflict: What happens to layers that fail in half precision, as in `amp_scope`;
            None pins them.

    Returns:
        The script's exit code; 2 if the precision cannot be switched on.
    """
    session: Session | None = None
    summary: RunSummary | None = None

    def stop(exit_code: int) -> None:
        nonlocal summary
        summary = None if session is None else session.stop(report, exit_code)

    def start() -> None:
        nonlocal session
        from tf_amp_kit import register_for_files
        from tf_amp_kit.launcher.session import DEFAULT_ON_CONFLICT, Session

        register_for_files()
        way_out = DEFAULT_ON_CONFLICT if on_conflict is None else on_conflict
        started = Session(precision, level, audit, on_conflict=way_out)
        try:
            started.start()
        except AmpError as error:
            # Out of the script's own import, which it then ends in.
            _say(f"error: {' '.join(str(error).split())}")
            raise SystemExit(_EXIT_USAGE) from error
        session = started

    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = value_for(precision, level, on_conflict)
    try:
        with when_imported("keras", start):
            code = script.run(at_end=stop)
        if summary is not None:
            _tell(summary, quiet=quiet)
        elif session is None and code == 0:
            _say("the script never imported Keras: there was nothing to do.")
    except SystemExit:  # Keras was imported before, so that no script was begun
        return _EXIT_USAGE
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
    return code


def _tell(summary: RunSummary, *, quiet: bool) -> None:
    if not quiet:
        print(f"\n{summary}", file=sys.stderr)
    if summary.report is None:
        return
    try:
        _write(summary, summary.report)
    except (AmpError, OSError) as error:  # what the script made is there all the same
        _say(f"error: the report could not be written: {error}")


def _write(summary: RunSummary, report: str) -> None:
    from tf_amp_kit.launcher.section import section_of_run
    from tf_amp_kit.reporting.html import section_of, write_sections

    audits = [section_of(one.audit) for one in summary.models if one.audit is not None]
    Path(report).parent.mkdir(parents=True, exist_ok=True)
    write_sections([section_of_run(summary), *audits], report)


def _say(text: str) -> None:
    print(f"tf-amp-kit: {text}", file=sys.stderr)
