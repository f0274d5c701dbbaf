"""What a project's settings make of an audit."""

import re

import pytest

from tf_amp_kit.errors import SettingsError
from tf_amp_kit.inspection.findings import finding
from tf_amp_kit.inspection.report import AuditReport, LayerRow
from tf_amp_kit.inspection.strictness import Strictness


def found(code, path):
    return finding(code, path, "Dense", "does", "do not")


REPORT = AuditReport(
    "net",
    "float16",
    (
        found("AMP301", "@optimizer"),
        found("AMP101", "encoder/a"),
        found("AMP101", "head"),
        found("AMP203", "head"),
    ),
    tuple(
        LayerRow(path, "Dense", "mixed_float16", (), (), "", codes)
        for path, codes in [("encoder/a", ("AMP101",)), ("head", ("AMP101", "AMP203"))]
    ),
    ("A remark.",),
)


def told(report):
    return [(one.code, one.path, one.severity) for one in report.findings]


def row_codes(report):
    return [row.findings for row in report.rows]


def test_without_settings_the_report_stays_as_it_is():
    assert Strictness().applied_to(REPORT) == REPORT


def test_an_ignored_code_leaves_findings_and_rows_and_is_counted():
    report = Strictness(ignore=["AMP101"]).applied_to(REPORT)
    assert told(report) == [("AMP301", "@optimizer", "error"), ("AMP203", "head", "note")]
    assert row_codes(report) == [(), ("AMP203",)]
    assert report.remarks == ("A remark.", "Left out as asked: 2 AMP101.")


@pytest.mark.parametrize("pattern", ["encoder/.*", "encoder/a"])
def test_a_code_is_ignored_where_the_whole_path_matches(pattern):
    report = Strictness(per_layer_ignore={pattern: ["AMP101"]}).applied_to(REPORT)
    assert ("AMP101", "head", "warning") in told(report)
    assert row_codes(report) == [(), ("AMP101", "AMP203")]


def test_a_pattern_does_not_match_a_part_of_a_path():
    settings = Strictness(per_layer_ignore={"encoder": ["AMP101"], "hea": ["AMP203"]})
    assert settings.applied_to(REPORT) == REPORT


def test_a_path_counts_as_it_is_written():
    report = AuditReport("net", "float16", (found("AMP101", "a+b"),), ())
    assert Strictness(per_layer_ignore={"a+b": ["AMP101"]}).applied_to(report).findings == ()


def test_another_severity_counts_everywhere():
    settings = Strictness(severities={"AMP203": "error", "AMP101": "note"})
    report = settings.applied_to(REPORT)
    assert told(report) == [
        ("AMP301", "@optimizer", "error"),
        ("AMP203", "head", "error"),
        ("AMP101", "encoder/a", "note"),
        ("AMP101", "head", "note"),
    ]
    assert len(report.findings_at_least("warning")) == 2


def test_options_add_codes_and_win_over_the_severity():
    settings = Strictness(ignore=["AMP101"], fail_on="error")
    assert settings.with_options(ignore=["AMP203"], fail_on="note") == Strictness(
        ignore=("AMP101", "AMP203"), fail_on="note"
    )
    assert settings.with_options(ignore=[], fail_on=None).fail_on == "error"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ignore": "AMP101"}, "`ignore` is no list. Expected a list of codes"),
        ({"ignore": ["AMP999"]}, "Unknown finding code in `ignore`."),
        ({"ignore": [["AMP101"]]}, "Received: ['AMP101']."),
        ({"severities": ["AMP101"]}, "`severities` is no table."),
        ({"severities": {"AMP999": "note"}}, "Unknown finding code in `severities`."),
        ({"severities": {"AMP101": "fatal"}}, "Received: 'fatal'."),
        ({"severities": {"AMP101": 1}}, "Unknown severity in `severities of AMP101`."),
        ({"fail_on": "all"}, "Unknown severity in `fail_on`."),
        ({"fail_on": ["error"]}, "Received: ['error']."),
        ({"per_layer_ignore": ["a"]}, "`per_layer_ignore` is no table."),
        ({"per_layer_ignore": {"(": ["AMP101"]}}, "is no regular expression"),
        ({"per_layer_ignore": {"a": ["AMP999"]}}, "in `per_layer_ignore of 'a'`"),
        ({"per_layer_ignore": {"a": "AMP101"}}, "`per_layer_ignore of 'a'` is no list."),
    ],
)
def test_what_cannot_be_meant_is_refused(given, words):
    with pytest.raises(SettingsError, match=re.escape(words)):
        Strictness(**given)
