"""SARIF logs against the standard's schema, and what the schema cannot say."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from tests.reporting.audits import (
    OUTSIDE,
    PLACES,
    ROOT,
    audit,
    audit_of_every_kind,
    found,
)
from tf_amp_kit import __version__
from tf_amp_kit.inspection.findings import CODES
from tf_amp_kit.reporting.places import Places
from tf_amp_kit.reporting.sarif import sarif_log, sarif_text
from tf_amp_kit.tracing.source import Source

SCHEMA = json.loads(
    Path(__file__).with_name("schemas").joinpath("sarif-2.1.0-rtm.5.json").read_text()
)


def check(log):
    jsonschema.Draft4Validator(SCHEMA).validate(log)


def run_of(report, places=PLACES):
    (run,) = sarif_log(report, places, name="net:build")["runs"]
    return run


def result_of(one, places=PLACES):
    (result,) = run_of(audit(one), places)["results"]
    return result


def fingerprints(report):
    return [one["partialFingerprints"]["findingIdentity/v1"] for one in run_of(report)["results"]]


@pytest.mark.parametrize("places", [PLACES, Places(ROOT), Places("/nowhere")])
@pytest.mark.parametrize("report", [audit_of_every_kind(), audit()])
def test_a_log_is_valid(report, places):
    check(sarif_log(report, places, name="net:build"))


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("level", "fatal"),
        ("message", {}),
        ("ruleIndex", -2),
        ("severity", "error"),
        ("partialFingerprints", {"findingIdentity/v1": 1}),
    ],
)
def test_the_schema_refuses_what_is_wrong(part, wrong):
    log = copy.deepcopy(sarif_log(audit(found()), PLACES, name="net:build"))
    log["runs"][0]["results"][0][part] = wrong
    with pytest.raises(jsonschema.ValidationError):
        check(log)


def test_the_text_is_the_log_as_json():
    report = audit_of_every_kind()
    text = sarif_text(report, PLACES, name="net:build")
    assert json.loads(text) == sarif_log(report, PLACES, name="net:build")


def test_the_driver_has_a_rule_for_every_code():
    driver = run_of(audit())["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("tf_amp_kit", __version__)
    told = {
        rule["id"]: (rule["defaultConfiguration"]["level"], rule["shortDescription"]["text"])
        for rule in driver["rules"]
    }
    assert told == CODES
    assert all(rule["help"]["text"] for rule in driver["rules"])


def test_every_finding_is_one_result_with_its_rule_and_level():
    report = audit_of_every_kind()
    run = run_of(report)
    rules = run["tool"]["driver"]["rules"]
    told = [(rules[one["ruleIndex"]]["id"], one["ruleId"], one["level"]) for one in run["results"]]
    assert told == [(one.code, one.code, one.severity) for one in report.findings]


def test_a_changed_severity_is_the_level_of_the_result_alone():
    run = run_of(audit(replace(found("AMP203"), severity="error")))
    rule = run["tool"]["driver"]["rules"][run["results"][0]["ruleIndex"]]
    assert (run["results"][0]["level"], rule["defaultConfiguration"]["level"]) == ("error", "note")


def test_a_result_points_at_its_line_and_its_layer():
    (location,) = result_of(found(path="blocks/0/scale"))["locations"]
    assert location == {
        "physicalLocation": {
            "artifactLocation": {"uri": "models/net.py", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 7, "snippet": {"text": "return x * y"}},
        },
        "logicalLocations": [{"name": "scale", "fullyQualifiedName": "blocks/0/scale"}],
    }


@pytest.mark.parametrize(
    ("file", "uri"),
    [
        ("a b/net.py", "a%20b/net.py"),
        ("a:b/net.py", "a%3Ab/net.py"),
        ("größe#1.py", "gr%C3%B6%C3%9Fe%231.py"),
        ("100%.py", "100%25.py"),
    ],
)
def test_a_file_is_a_relative_reference(file, uri):
    result = result_of(found(source=Source(f"{ROOT}/{file}", 1, "")))
    physical = result["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"]["uri"] == uri
    assert physical["region"] == {"startLine": 1}


def test_a_file_outside_is_an_absolute_reference():
    result = result_of(found(source=OUTSIDE), Places(ROOT))
    artifact = result["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "file:///usr/lib/layers.py"}


@pytest.mark.parametrize("source", [None, OUTSIDE])
def test_what_has_no_line_inside_points_at_the_builder(source):
    physical = result_of(found(source=source))["locations"][0]["physicalLocation"]
    assert physical["region"] == {"startLine": 40, "snippet": {"text": "def build():"}}


def test_a_result_without_any_line_has_its_layer():
    (location,) = result_of(found(path="", source=None), Places(ROOT))["locations"]
    assert location == {"logicalLocations": [{"name": "net", "fullyQualifiedName": "net"}]}


def test_braces_are_doubled_and_so_no_placeholders():
    text = result_of(found(message="leaves {0}"))["message"]["text"]
    assert text.startswith("scale (Scale) leaves {{0}}.")


def test_a_fingerprint_survives_moved_lines_and_changed_numbers():
    before = found(message="3 % of the model", source=Source(f"{ROOT}/net.py", 7, "x * y"))
    after = found(message="4 % of the model", source=Source(f"{ROOT}/sub/net.py", 90, "x * y"))
    assert fingerprints(audit(before)) == fingerprints(audit(after))


@pytest.mark.parametrize(
    "other",
    [
        found("AMP103"),
        found(path="scale_1"),
        found(source=Source(f"{ROOT}/models/net.py", 7, "return x * z")),
        found(source=None),
        found(),
    ],
)
def test_another_finding_has_another_fingerprint(other):
    first, second = fingerprints(audit(found(), other))
    assert first != second


def test_remarks_are_notifications():
    (invocation,) = run_of(audit(remarks=("It ran eagerly.",)))["invocations"]
    assert invocation["executionSuccessful"] is True
    assert invocation["toolExecutionNotifications"] == [
        {"level": "note", "message": {"text": "It ran eagerly."}}
    ]


def test_the_runs_on_several_models_are_told_apart():
    ids = {
        sarif_log(audit(), PLACES, name=name)["runs"][0]["automationDetails"]["id"]
        for name in ("net:build", "net:build_small")
    }
    assert ids == {"tf_amp_kit/net:build/", "tf_amp_kit/net:build_small/"}
