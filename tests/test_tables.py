import re

import pytest

from tf_amp_kit.tables import html_table, render_table


def test_a_table_is_a_title_a_ruled_header_and_rows():
    text = render_table(
        ["Layer", "Class", "Bytes"],
        [["dense", "Dense", "1024"], ["head", "Activation", "4"]],
        title="Two layers",
        right_aligned=["Bytes"],
    )
    assert text == (
        "Two layers\n"
        "\n"
        "Layer  Class       Bytes\n"
        "------------------------\n"
        "dense  Dense        1024\n"
        "head   Activation      4"
    )


def test_long_cells_wrap_at_spaces_and_paths_after_slashes():
    text = render_table(
        ["Layer", "What"],
        [["encoder/blocks/0/attention/softmax", "computes in float32 inside a half layer"]],
        width=40,
    )
    assert text == (
        "Layer               What\n"
        "----------------------------------------\n"
        "encoder/blocks/0/   computes in float32\n"
        "attention/softmax   inside a half layer"
    )


def test_a_word_without_a_break_is_cut_and_nothing_of_it_is_lost():
    text = render_table(["A"], [["x" * 25]], width=10)
    assert text == "A\n----------\nxxxxxxxxxx\nxxxxxxxxxx\nxxxxx"


def test_brackets_and_markup_and_emoji_codes_are_literal():
    cells = ["blocks[0]", "[bold]x[/bold]", ":smile:", "[/]"]
    text = render_table(list("abcd"), [cells])
    assert text.splitlines()[-1].split("  ") == cells


def test_a_line_break_in_a_cell_is_kept():
    assert render_table(["A", "B"], [["one\ntwo", "x"]]) == "A    B\n------\none  x\ntwo"


def test_a_table_without_rows_is_its_header():
    assert render_table(["Layer", "Class"], []) == "Layer  Class\n------------"


@pytest.mark.parametrize("width", [10, 37, 100])
def test_no_line_is_wider_than_the_width_or_ends_in_a_space(width):
    row = ["encoder/" * 20, "words and words " * 9, "畳み込み" * 9, ""]
    lines = render_table(["Path", "Words", "Wide", "Empty"], [row], title="t " * 99, width=width)
    # A Chinese or Japanese character takes two columns.
    widths = [len(line) + sum(ord(char) > 0x2E80 for char in line) for line in lines.splitlines()]
    assert max(widths) <= width
    assert not re.search(r"[ \t]$", lines, re.MULTILINE)


@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_the_text_does_not_depend_on_the_terminal(monkeypatch, term):
    expected = render_table(["Layer"], [["x " * 45]])
    settings = {"COLUMNS": "20", "FORCE_COLOR": "1", "TERM": term}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert render_table(["Layer"], [["x " * 45]]) == expected


def test_the_text_is_plain_ascii_if_its_cells_are():
    assert render_table(["Layer"], [["word " * 99]], title="t").isascii()


@pytest.mark.parametrize("render", [render_table, html_table])
def test_a_row_of_another_length_is_refused(render):
    message = (
        "Every row needs one cell per column. Expected 2 cells for columns=['A', 'B']. "
        "Received: row=['x']."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        render(["A", "B"], [["x"]])


def test_a_width_that_would_drop_columns_is_refused():
    message = "A table of 3 columns needs a width of at least 7. Received: width=6."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        render_table(["A", "B", "C"], [["x", "y", "z"]], width=6)


def test_the_narrowest_width_keeps_every_column():
    assert render_table(["A", "B", "C"], [["xx", "y", "z"]], width=7).splitlines()[2:] == [
        "x  y  z",
        "x",
    ]


def test_the_html_table_escapes_everything():
    html = html_table(["<a>"], [["x & <script>"], ["'\""]], title="<t>")
    assert html == (
        "<table><caption>&lt;t&gt;</caption><thead><tr><th>&lt;a&gt;</th></tr></thead><tbody>"
        "<tr><td>x &amp; &lt;script&gt;</td></tr><tr><td>&#x27;&quot;</td></tr></tbody></table>"
    )
