"""Workflow commands, whose escapes are those of GitHub's toolkit.

`%`, CR and LF are escaped everywhere, `:` and `,` in properties too.
"""

import re
from dataclasses import replace

import pytest

from tests.reporting.audits import OUTSIDE, PLACES, ROOT, audit, audit_of_every_kind, found
from tf_amp_kit.reporting.annotations import github_text
from tf_amp_kit.reporting.places import Places
from tf_amp_kit.tracing.source import Source

COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")


def unescaped(text):
    """Reads a value as the runner does."""
    for escape, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        text = text.replace(escape, character)
    return text.replace("%25", "%")


def commands(report, places=PLACES):
    """Returns level, properties and message of every command."""
    read = [match.groups() for match in map(COMMAND.fullmatch, lines(report, places)) if match]
    return [
        (level, dict(map(unescaped, pair.split("=", 1)) for pair in listed.split(",")), message)
        for level, listed, message in read
    ]


def lines(report, places=PLACES):
    return github_text(report, places).split("\n")


def test_a_finding_is_one_command_on_its_line():
    assert github_text(audit(found()), PLACES) == (
        "::warning file=models/net.py,line=7,"
        "title=AMP101%3A float output wider than the compute dtype::"
        "scale (Scale) returns float32.%0AFix: cast it\n"
        "Audit of 'net', expected to compute in bfloat16: 1 warning"
    )


@pytest.mark.parametrize(
    ("severity", "level"), [("error", "error"), ("warning", "warning"), ("note", "notice")]
)
def test_a_severity_has_its_command(severity, level):
    (command,) = commands(audit(replace(found(), severity=severity)))
    assert command[0] == level


def test_every_finding_appears_once():
    report = audit_of_every_kind()
    assert len(commands(report)) == len(report.findings)
    # What the audit says as a whole, and each remark.
    assert len(lines(report)) == len(report.findings) + 3


def test_a_message_is_escaped():
    text = github_text(audit(found(message="is 100% a\r\n::error::b, c")), PLACES)
    assert "::scale (Scale) is 100%25 a%0D%0A::error::b, c.%0AFix" in text
    assert len(text.split("\n")) == 2


def test_a_property_is_escaped():
    odd = Source(f"{ROOT}/a,b:c%\n.py", 3, "")
    text = github_text(audit(found(source=odd)), PLACES)
    assert "::warning file=a%2Cb%3Ac%25%0A.py,line=3,title=" in text


def test_a_finding_without_a_line_is_shown_at_the_builder():
    ((_, properties, _),) = commands(audit(found(source=None)))
    assert (properties["file"], properties["line"]) == ("models/net.py", "40")


@pytest.mark.parametrize("source", [None, OUTSIDE])
def test_a_finding_without_a_place_in_the_root_is_shown_with_the_run(source):
    ((_, properties, _),) = commands(audit(found(source=source)), Places(ROOT))
    assert list(properties) == ["title"]


def test_remarks_are_lines_of_their_own():
    assert lines(audit(remarks=("It ran\n::error::eagerly.",))) == [
        "Audit of 'net', expected to compute in bfloat16: no findings",
        "It ran ::error::eagerly.",
    ]
