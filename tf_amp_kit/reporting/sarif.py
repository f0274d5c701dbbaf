"""An audit as SARIF 2.1.0, which code scanning services and editors read.

Sections (§) are those of the OASIS standard "Static Analysis Results Interchange
Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from tf_amp_kit import __version__
from tf_amp_kit.inspection.advice import ADVICE
from tf_amp_kit.inspection.findings import CODES, Finding
from tf_amp_kit.inspection.report import AuditReport
from tf_amp_kit.reporting.places import Place, Places, words

__all__ = ["sarif_log", "sarif_text"]

_SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_ROOT: Final = "%SRCROOT%"
# The number after the slash changes when what is hashed changes (§3.27.17).
_FINGERPRINT: Final = "findingIdentity/v1"
_RULE_INDEX: Final = {code: index for index, code in enumerate(CODES)}


def sarif_text(report: AuditReport, places: Places, *, name: str) -> str:
    """Writes `sarif_log` as indented JSON."""
    return json.dumps(sarif_log(report, places, name=name), indent=2)


def sarif_log(report: AuditReport, places: Places, *, name: str) -> dict[str, Any]:
    """Puts an audit into a SARIF log with one run.

    Args:
        report: The audit.
        places: Where findings are shown, in files relative to `%SRCROOT%`.
        name: What was audited, `package.module:builder` for example: it tells the
            runs on several models of one repository apart.

    Returns:
        The log, of dictionaries, lists, strings and numbers.

    Example:

    >>> report = AuditReport("net", "bfloat16", findings=(), rows=())
    >>> sarif_log(report, Places("/src"), name="net:build")["version"]
    '2.1.0'
    """
    driver = {
        "name": "tf_amp_kit",
        "version": __version__,
        "rules": [_rule(code) for code in CODES],
    }
    run = {
        "tool": {"driver": driver},
        # All before the last slash is the category, in which a run replaces the one before.
        "automationDetails": {"id": f"tf_amp_kit/{name}/"},
        "invocations": [_invocation(report)],
        "results": list(_results(report, places)),
        "properties": {"model_name": report.model_name, "precision": report.precision},
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    severity, subject = CODES[code]
    return {
        "id": code,
        "shortDescription": {"text": subject},
        "fullDescription": {"text": ADVICE[code]},
        "help": {"text": ADVICE[code]},
        "defaultConfiguration": {"level": severity},
    }


def _invocation(report: AuditReport) -> dict[str, Any]:
    said = [{"level": "note", "message": _message(remark)} for remark in report.remarks]
    return {"executionSuccessful": True, "toolExecutionNotifications": said}


def _results(report: AuditReport, places: Places) -> Iterator[dict[str, Any]]:
    seen: Counter[str] = Counter()
    for one in report.findings:
        place, identity = places.of(one), _identity(one)
        # Several findings may be alike, two constants in one line for example.
        seen[identity] += 1
        yield {
            "ruleId": one.code,
            "ruleIndex": _RULE_INDEX[one.code],
            "level": one.severity,
            "message": _message(words(one, report.model_name, place)),
            "locations": [_location(one.path or report.model_name, place)],
            "partialFingerprints": {_FINGERPRINT: f"{identity}:{seen[identity]}"},
            "properties": {
                "path": one.path,
                "layer_class": one.layer_class,
                "fix": one.fix,
                "affects": list(one.affects),
            },
        }


def _identity(one: Finding) -> str:
    """Hashes what stays the same when lines move, and when numbers in a message change."""
    text = one.source.text if one.source else ""
    parts = json.dumps([one.code, one.path, one.layer_class, text])
    return hashlib.sha256(parts.encode()).hexdigest()


def _location(path: str, place: Place | None) -> dict[str, Any]:
    logical = {"name": path.rpartition("/")[2], "fullyQualifiedName": path}
    location: dict[str, Any] = {"logicalLocations": [logical]}
    if place:
        location["physicalLocation"] = _physical(place)
    return location


def _physical(place: Place) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": place.line}
    if place.text:
        region["snippet"] = {"text": place.text}
    if place.is_inside:
        # Quoted, a colon in the first folder's name is no scheme.
        artifact = {"uri": quote(place.file), "uriBaseId": _ROOT}
    else:
        artifact = {"uri": _absolute_uri(place.file)}
    return {"artifactLocation": artifact, "region": region}


def _absolute_uri(file: str) -> str:
    # Windows paths begin with a drive, and not with a slash.
    return f"file:///{quote(file.lstrip('/'), safe='/:')}"


def _message(text: str) -> dict[str, str]:
    """Makes a message object, in which single braces would be placeholders (§3.11.5)."""
    return {"text": text.replace("{", "{{").replace("}", "}}")}
