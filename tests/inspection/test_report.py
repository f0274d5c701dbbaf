"""The record: printing, ignoring, raising, JSON."""

import json
import re

import keras
import numpy as np
import pytest
from keras import layers, ops

from tf_amp_kit.errors import FindingsError
from tf_amp_kit.inspection.audit import audit_layer_dtypes
from tf_amp_kit.inspection.findings import CODES, finding
from tf_amp_kit.inspection.report import AuditReport, LayerRow
from tf_amp_kit.tracing.source import Source


class Scale(layers.Layer):
    def call(self, inputs):
        return ops.multiply(inputs, np.float32(2))


def scaled_model():
    made = [Scale(name="scale"), layers.Dense(1, dtype="float32", name="head")]
    return keras.Sequential([keras.Input((4,)), *made], name="net")


FOUND = finding(
    "AMP101",
    "scale",
    "Scale",
    "returns float32",
    "cast it",
    source=Source("net.py", 7, "return x * y"),
    affects=("head", "a", "b", "c"),
)
ROW = LayerRow("scale", "Scale", "mixed_float16", ("float32",), ("float32",), "", ("AMP101",))


def test_the_report_prints_the_table_the_findings_and_their_number():
    note = finding("AMP402", "", "Sequential", "float16 is slow", "train elsewhere")
    report = AuditReport("net", "float16", (FOUND, note), (ROW,), ("A remark.",))
    assert str(report) == (
        "Audit of 'net', expected to compute in float16\n"
        "\n"
        "Layer  Class  Policy         Output   Compute  Findings\n"
        "-------------------------------------------------------\n"
        "scale  Scale  mixed_float16  float32  float32  AMP101\n"
        "\n"
        "A remark.\n"
        "\n"
        "AMP101 warning: scale (Scale) returns float32.\n"
        "    net.py:7\n"
        "        return x * y\n"
        "    Fix: cast it\n"
        "    Touches: head, a, b and 1 more\n"
        "\n"
        "AMP402 note: (model) (Sequential) float16 is slow.\n"
        "\n"
        "1 warning, 1 note"
    )


def test_printing_is_what_verbose_does(half, capsys):
    report = audit_layer_dtypes(scaled_model())
    assert capsys.readouterr().out == f"{report}\n"


def test_verbose_0_is_silent(half, capsys):
    audit_layer_dtypes(scaled_model(), verbose=0)
    assert capsys.readouterr().out == ""


def test_a_table_of_long_names_fits_100_columns(half):
    inner = scaled_model()
    for depth in range(6):
        inner = keras.Sequential([keras.Input((4,)), inner], name=f"a_rather_long_name_{depth}")
    table = str(audit_layer_dtypes(inner, verbose=0)).split("\n\n")[1]
    assert max(map(len, table.splitlines())) <= 100


def test_ignored_codes_are_left_out(half):
    report = audit_layer_dtypes(scaled_model(), ignore=("AMP101",), verbose=0)
    assert "AMP101" not in {one.code for one in report.findings}


@pytest.mark.parametrize("ignore", [("AMP999",), "AMP101"])
def test_an_unknown_code_to_ignore_is_refused(ignore, half):
    with pytest.raises(ValueError, match=re.escape(f"Received: ignore={ignore!r}.")):
        audit_layer_dtypes(scaled_model(), ignore=ignore, verbose=0)


def test_a_warning_raises_by_default_with_its_place(half):
    report = audit_layer_dtypes(scaled_model(), verbose=0)
    with pytest.raises(FindingsError, match=re.escape("AMP101 warning scale: returns float32")):
        report.raise_for_findings()


def test_a_warning_passes_where_only_errors_count(half):
    audit_layer_dtypes(scaled_model(), verbose=0).raise_for_findings("error")


def test_a_note_raises_only_where_notes_count():
    note = finding("AMP402", "", "Sequential", "float16 is slow", "train elsewhere")
    report = AuditReport("net", "float16", (note,), ())
    report.raise_for_findings()
    with pytest.raises(FindingsError):
        report.raise_for_findings("note")


def test_an_unknown_severity_is_refused():
    report = AuditReport("net", "float16", (), ())
    with pytest.raises(ValueError, match=re.escape("Received: severity='fatal'.")):
        report.raise_for_findings("fatal")


def test_json_says_what_the_record_says(half):
    report = audit_layer_dtypes(scaled_model(), verbose=0)
    said = json.loads(report.to_json())
    assert said == report.to_dict()
    assert said["findings"][0]["source"]["line"] == report.findings[0].source.line


def test_html_escapes_what_users_wrote():
    report = AuditReport("<b>", "float16", (), (LayerRow("<i>", "X", "", (), ()),))
    assert "<b>" not in report._repr_html_()
    assert "&lt;i&gt;" in report._repr_html_()


def test_findings_come_with_the_gravest_first(half):
    report = audit_layer_dtypes(keras.Sequential([keras.Input((4,)), Scale()]), verbose=0)
    order = ["error", "warning", "note"]
    ranks = [order.index(one.severity) for one in report.findings]
    assert ranks == sorted(ranks)


def test_the_row_of_a_float32_layer_says_that_it_chose_so(half):
    rows = {row.path: row for row in audit_layer_dtypes(scaled_model(), verbose=0).rows}
    assert rows["head"].remark == "by its own choice"


def test_an_all_float32_model_gets_one_line():
    report = audit_layer_dtypes(scaled_model(), verbose=0)
    assert report.findings == ()
    (remark,) = report.remarks
    assert remark.startswith("Nothing is half: every layer computes in float32.")


def test_every_code_has_one_of_three_severities():
    assert {severity for severity, _ in CODES.values()} == {"error", "warning", "note"}


def test_long_findings_wrap_at_100_columns_but_for_source_lines(half):
    report = audit_layer_dtypes(scaled_model(), verbose=0)
    text = str(report).replace(report.findings[0].source.file, "net.py")
    assert max(map(len, text.splitlines())) <= 100


def test_repr_is_one_line():
    report = AuditReport("net", "float16", (FOUND,), (ROW,))
    assert repr(report) == "<AuditReport of 'net' in float16: 1 layers, 1 warning>"
