"""An audit as GitHub's workflow commands, which annotate lines of a pull request.

GitHub shows at most ten annotations of each level per step. All findings are in the
log of the step, and a SARIF file can hold them all.
"""

from __future__ import annotations

from typing import Final

from tf_amp_kit.inspection.findings import CODES, Finding
from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.reporting.places import Place, Places, words

__all__ = ["github_text"]

_COMMANDS: Final = {"error": "error", "warning": "warning", "note": "notice"}

# The percent sign first, or it would escape the others' escapes.
_DATA_ESCAPES: Final = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_PROPERTY_ESCAPES: Final = (*_DATA_ESCAPES, (":", "%3A"), (",", "%2C"))


def github_text(report: AuditReport, places: Places) -> str:
    """Writes one workflow command per finding, and what the audit says as a whole.

    Args:
        report: The audit.
        places: Where findings are shown. One without a file inside the root is
            shown with the run, not with a line.

    Returns:
        Lines for the log of a step, without a newline at the end.

    Example:

    >>> report = AuditReport("net", "bfloat16", findings=(), rows=())
    >>> print(github_text(report, Places("/src")))
    Audit of 'net', expected to compute in bfloat16: no findings
    """
    commands = [_command(one, report.model_name, places.of(one)) for one in report.findings]
    said = (
        f"Audit of {report.model_name!r}, expected to compute in {report.precision}: "
        f"{report.summary() or 'no findings'}"
    )
    return "\n".join([*commands, *(" ".join(line.split()) for line in (said, *report.remarks))])


def _command(one: Finding, model_name: str, place: Place | None) -> str:
    properties = {"title": f"{one.code}: {CODES[one.code][1]}"}
    if place and place.is_inside:
        properties = {"file": place.file, "line": str(place.line), **properties}
    listed = ",".join(f"{key}={_escaped(v, _PROPERTY_ESCAPES)}" for key, v in properties.items())
    message = _escaped(words(one, model_name, place), _DATA_ESCAPES)
    return f"::{_COMMANDS[one.severity]} {listed}::{message}"


def _escaped(text: str, escapes: tuple[tuple[str, str], ...]) -> str:
    for character, escape in escapes:
        text = text.replace(character, escape)
    return text
