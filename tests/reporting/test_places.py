"""The line that a finding is shown at, and the words there."""

import pytest

from tests.reporting.audits import INSIDE, OUTSIDE, PLACES, ROOT, found
from tf_amp_kit.inspection.advice import ADVICE
from tf_amp_kit.inspection.findings import CODES
from tf_amp_kit.reporting.places import Place, Places, words
from tf_amp_kit.tracing.source import Source

AT_THE_BUILDER = Place("models/net.py", 40, "def build():", is_inside=True, is_own=False)


def test_a_line_inside_the_root_is_told_relative_to_it():
    expected = Place("models/net.py", 7, "return x * y", is_inside=True, is_own=True)
    assert PLACES.of(found(source=INSIDE)) == expected


@pytest.mark.parametrize("source", [None, OUTSIDE, Source("<string>", 1, "")])
def test_what_has_no_line_inside_the_root_is_shown_at_the_builder(source):
    assert PLACES.of(found(source=source)) == AT_THE_BUILDER


def test_code_from_a_string_is_no_file_of_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Places(str(tmp_path)).of(found(source=Source("<string>", 1, ""))) is None


def test_a_folder_whose_name_begins_like_the_root_is_outside():
    near = Source("/src/project2/net.py", 7, "")
    assert PLACES.of(found(source=near)) == AT_THE_BUILDER


@pytest.mark.parametrize("model", [None, Source("/opt/zoo.py", 3, "def build():")])
def test_a_line_outside_is_shown_where_it_is_if_the_model_is_outside_too(model):
    place = Places(ROOT, model).of(found(source=OUTSIDE))
    assert place == Place("/usr/lib/layers.py", 9, "return x + y", is_inside=False, is_own=True)


def test_without_any_line_there_is_no_place():
    assert Places(ROOT).of(found(source=None)) is None


def test_a_relative_file_is_one_of_the_current_directory(tmp_path, monkeypatch):
    tmp_path.joinpath("sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    place = Places(str(tmp_path)).of(found(source=Source("net.py", 1, "")))
    assert place.file == "sub/net.py"


def test_the_words_are_the_message_the_fix_and_what_is_touched():
    one = found(affects=("a", "b", "c", "d"))
    assert words(one, "net", PLACES.of(one)) == (
        "scale (Scale) returns float32.\nFix: cast it\nTouches: 'a', 'b', 'c' and 1 more"
    )


def test_a_line_that_is_not_shown_is_named():
    one = found(path="", source=OUTSIDE)
    assert words(one, "net", PLACES.of(one)) == (
        "net (Scale) returns float32.\nAt /usr/lib/layers.py:9: return x + y\nFix: cast it"
    )


def test_every_code_has_advice():
    assert list(ADVICE) == list(CODES)
