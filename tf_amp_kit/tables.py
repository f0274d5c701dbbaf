"""The text table that every record prints itself with, and its HTML twin.

Pure presentation: strings in, one string out. The text does not depend on the
terminal, on its colours or on environment variables, so that tests can pin it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from io import StringIO
from typing import Final

from rich.box import Box
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

__all__ = ["DEFAULT_WIDTH", "html_table", "percent", "render_table", "some", "wrapped"]

# Fits a split editor window and a CI log.
DEFAULT_WIDTH: Final = 100

# Plain ASCII, because rich's own boxes cannot be printed to every pipe.
_RULE_UNDER_HEADER: Final = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)

_BREAKABLE: Final = re.compile(r"[^\s/]*/+|[^\s/]+|\s+")


class _Cell:
    """A cell's literal text, wrapped at spaces and after slashes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        pieces = [cell_len(piece) for piece in _BREAKABLE.findall(self._text)]
        lines = [cell_len(line) for line in self._text.split("\n")]
        return Measurement(max(pieces, default=0), max(lines)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self._text.split("\n"):
            for part in _wrap(line, options.max_width):
                yield Text(part, no_wrap=True, justify=options.justify)


def _wrap(line: str, width: int) -> list[str]:
    """Breaks one line into parts of at most `width` columns."""
    parts = [""]
    for piece in _BREAKABLE.findall(line):
        if cell_len(parts[-1] + piece.rstrip()) <= width:
            parts[-1] += piece
        elif piece.isspace():
            parts.append("")
        else:
            parts.extend(chop_cells(piece, width))
    return [part.rstrip() for part in parts if part.strip()] or [""]


def render_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str | None = None,
    width: int = DEFAULT_WIDTH,
    right_aligned: Collection[str] = (),
    kept_widths: Mapping[str, int] | None = None,
) -> str:
    """Lays strings out as a plain text table.

    Used by the `__str__` of every record. What does not fit wraps, at spaces
    and after the slashes of a path first, anywhere else if it must. Square
    brackets are literal: `blocks[0]` is no markup.

    Args:
        columns: The header of each column.
        rows: One sequence of strings per row, as long as `columns`. Without
            rows, the header alone is printed.
        title: A line above the table.
        width: The largest number of columns of text that a line may take.
        right_aligned: The headers of those columns that hold numbers.
        kept_widths: Columns that give way last, and how wide they may get. The
            others wrap before these do.

    Returns:
        Lines joined by newlines, without trailing spaces or a last newline.

    Raises:
        ValueError: If a row has more or fewer cells than there are columns, or
            if `width` leaves a column without a single character.

    Example:

    >>> print(render_table(["Layer", "Bytes"], [["blocks[0]", "4"]], right_aligned=["Bytes"]))
    Layer      Bytes
    ----------------
    blocks[0]      4
    """
    _check_rows(columns, rows)
    # Rich would drop the columns that do not fit, and say nothing.
    least_width = 3 * len(columns) - 2
    if width < least_width:
        raise ValueError(
            f"A table of {len(columns)} columns needs a width of at least {least_width}. "
            f"Received: width={width}."
        )
    table = Table(box=_RULE_UNDER_HEADER, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    kept = kept_widths or {}
    for name in columns:
        table.add_column(
            _Cell(name),
            justify="right" if name in right_aligned else "left",
            no_wrap=name in kept,
            max_width=kept.get(name),
        )
    for row in rows:
        table.add_row(*map(_Cell, row))
    text = _to_text(table, width)
    return text if title is None else f"{_to_text(_Cell(title), width)}\n\n{text}"


def some(names: Collection[str], count: int = 3) -> str:
    """Quotes the first few names, and counts the others.

    Example:

    >>> some(["a", "b", "c", "d"])
    "'a', 'b', 'c' and 1 more"
    """
    shown = ", ".join(map(repr, list(names)[:count]))
    return f"{shown} and {len(names) - count} more" if len(names) > count else shown


def percent(fraction: float) -> str:
    """Writes a share in percent, and never a zero for what is not zero.

    Example:

    >>> percent(0.25), percent(1e-6), percent(0)
    ('25.0 %', '<0.05 %', '0 %')
    """
    if not fraction:
        return "0 %"
    return f"{100 * fraction:.1f} %" if fraction >= 0.0005 else "<0.05 %"


def wrapped(text: str) -> str:
    """Breaks a sentence into lines of the default width, indented from the second on.

    Words are left whole, paths above all: they are there to be found again.

    Example:

    >>> wrapped("short")
    'short'
    """
    return textwrap.fill(
        text,
        DEFAULT_WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None
) -> str:
    """Lays strings out as an HTML table, for the `_repr_html_` of a record.

    Args:
        columns: The header of each column.
        rows: One sequence of strings per row, as long as `columns`.
        title: The caption.

    Returns:
        One `<table>` element in which every string is escaped.

    Raises:
        ValueError: If a row has more or fewer cells than there are columns.

    Example:

    >>> html_table(["Layer"], [["<dense>"]])
    '<table><thead><tr><th>Layer</th></tr></thead><tbody><tr><td>&lt;dense&gt;</td></tr></tbody></table>'
    """
    _check_rows(columns, rows)
    caption = "" if title is None else f"<caption>{escape(title)}</caption>"
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _check_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(
                "Every row needs one cell per column. "
                f"Expected {len(columns)} cells for columns={list(columns)!r}. "
                f"Received: row={list(row)!r}."
            )


def _to_text(renderable: Table | _Cell, width: int) -> str:
    stream = StringIO()
    # Spelled out, because rich would read the terminal and the environment
    # (COLUMNS, FORCE_COLOR, a notebook) for whatever is left open.
    console = Console(
        file=stream,
        width=width,
        height=25,
        color_system=None,
        force_jupyter=False,
        legacy_windows=False,
    )
    console.print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip("\n").split("\n"))
