"""The page as text: its structure, what it escapes, and what it says of the records."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tf_amp_kit as amp
from tests.comparison.plans import plan_of
from tests.comparison.training.reports import report_of
from tests.reporting.html.records import (
    ATTACK,
    QUOTES,
    audit,
    clean_audit,
    every_kind,
    written,
)
from tf_amp_kit.errors import InputsError, MissingExtraError
from tf_amp_kit.reporting.html.views import Table, sort_key

VOID = {"meta", "link", "input", "br", "img"}


class Page(HTMLParser):
    """Elements by tag with their attributes and text; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, list[dict[str, str | None]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.setdefault(tag, []).append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.setdefault(tag, []).append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and data.strip():
            self.texts.setdefault(self.open[-1], []).append(" ".join(data.split()))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(every_kind(), tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_every_element_is_closed(page: Page) -> None:
    assert page.open == []


def test_each_record_has_a_section_and_a_link_to_it(page: Page) -> None:
    links = [one["href"] for one in page.found["a"] if one["href"] != "#content"]
    assert links == [f"#section-{i + 1}" for i in range(8)]
    assert [f"#{one['id']}" for one in page.found["section"]] == links


def test_names_of_elements_are_unique(page: Page) -> None:
    ids = [one["id"] for found in page.found.values() for one in found if one.get("id")]
    assert len(ids) == len(set(ids))


def test_references_lead_to_elements(page: Page) -> None:
    ids = {one["id"] for found in page.found.values() for one in found if one.get("id")}
    asked = {
        value
        for found in page.found.values()
        for one in found
        for name in ("for", "aria-labelledby")
        if (value := one.get(name))
    }
    assert asked <= ids


def test_nothing_is_loaded(text: str, page: Page) -> None:
    outside = [
        value
        for found in page.found.values()
        for one in found
        for name in ("src", "href", "xlink:href")
        if (value := one.get(name)) and not value.startswith(("#", "data:"))
    ]
    assert outside == []
    assert re.findall(r"url\((?!#)|@import", text) == []


def test_only_its_own_script_may_run(page: Page) -> None:
    (policy,) = [one["content"] for one in page.found["meta"] if one.get("http-equiv")]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy
    assert len(page.found["script"]) == 1


def test_what_users_wrote_is_escaped(text: str) -> None:
    assert (ATTACK in text, QUOTES in text) == (False, False)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_findings_show_their_line_of_code(page: Page) -> None:
    assert page.texts["code"] == [f"return x # {ATTACK}"]


def test_tables_have_headers_with_scope(page: Page) -> None:
    assert {one.get("scope") for one in page.found["th"]} == {"col"}
    assert len(page.found["table"]) > 10


def test_figures_have_a_text(page: Page) -> None:
    pictures = [one["aria-label"] for one in page.found["div"] if one.get("role") == "img"]
    assert len(pictures) == len(page.found["svg"]) == 7
    assert all(pictures)


@pytest.mark.parametrize(
    ("records", "headline"),
    [
        ([clean_audit()], "The model is fine: no record finds anything wrong."),
        (
            [clean_audit(), audit()],
            "The model needs a look. Audit of 'net': 'net' was expected to compute in bfloat16: "
            "1 warning.",
        ),
        (
            [audit(), replace(plan_of(), tolerance=1e-9)],
            "The model is not fine. Precision plan of 'net' in float16: The tolerance is not met.",
        ),
        ([amp.detect_hardware()], "Nothing here judges the model."),
        (
            [report_of()],
            "The model is not fine. Precisions compared on 'net': float16 O2, 1 layer in float32: "
            "worse.",
        ),
    ],
)
def test_one_sentence_says_whether_the_model_is_fine(
    tmp_path: Path, records: list[object], headline: str
) -> None:
    found = " ".join(Page(written(records, tmp_path)).texts["p"])
    assert found.startswith(headline)


def test_a_single_record_is_taken(tmp_path: Path) -> None:
    assert "Audit of &#39;net&#39;" in written(clean_audit(), tmp_path)


@pytest.mark.parametrize("odd", [[], [1], "report", None])
def test_what_is_no_record_is_refused(tmp_path: Path, odd: object) -> None:
    with pytest.raises(InputsError, match="Expected"):
        amp.write_report(odd, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


def test_without_jinja2_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=re.escape('pip install "tf_amp_kit[html]"')):
        amp.write_report(clean_audit(), tmp_path / "report.html")


def test_without_matplotlib_a_sentence_takes_the_place_of_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = written(plan_of(), tmp_path)
    assert ("<svg" in found, "There is no figure: " in found) == (False, True)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("12", 12.0),
        ("-0.5 %", -0.5),
        ("1.5 KiB", 1536.0),
        ("2.00 MiB", 2.0**21),
        ("2^3.0", 8.0),
        ("2.398e+06", 2398000.0),
        ("46.6 to 49.2", 46.6),
        ("3 of 4 layers", 3.0),
        ("not finite", None),
        ("-", None),
        ("", None),
        ("float16", None),
    ],
)
def test_cells_are_sorted_by_the_number_that_they_begin_with(text: str, key: float | None) -> None:
    assert sort_key(text) == key


def test_what_is_less_than_a_number_comes_before_it() -> None:
    assert 0 < (sort_key("<0.05 %") or 0) < (sort_key("0.05 %") or 0)


def test_cells_that_repeat_the_row_above_are_filled() -> None:
    table = Table("t", ("A", "B", "C"), [("a", "b", "1"), ("", "", ""), ("", "c", "")])
    rows = [[cell.text for cell in row] for row in table.cells()]
    assert rows == [["a", "b", "1"], ["a", "b", "1"], ["a", "c", ""]]


def test_records_stay_as_they_are(tmp_path: Path) -> None:
    record = audit()
    before = json.dumps(record.to_dict())
    written(record, tmp_path)
    assert json.dumps(record.to_dict()) == before
