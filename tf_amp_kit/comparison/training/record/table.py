"""A table of a comparison, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tf_amp_kit.tables import html_table, render_table, wrapped

__all__ = ["NOTHING", "Table"]

#: What a cell holds if there is nothing to tell.
NOTHING = "-"


@dataclass(frozen=True)
class Table:
    """Cells, and what is said of them. A column that holds nothing is left out.

    Attributes:
        title: What the table shows, and what its columns mean.
        columns: The headers.
        rows: One cell per column.
        num_names: How many columns, from the left, hold names and not numbers.
        notes: Sentences below the table.

    Example:

    >>> rows = (("float32", "-", "1.0"), ("bfloat16", "-", "1.25"))
    >>> print(Table("Speed", ("Precision", "Compile s", "Speed"), rows).text())
    Speed
    <BLANKLINE>
    Precision  Speed
    ----------------
    float32      1.0
    bfloat16    1.25
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Sequence[str], ...]
    num_names: int = 1
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Lays the table out as plain text."""
        columns, rows = self.shown()
        numbers = [name for name in columns if self.columns.index(name) >= self.num_names]
        kept = dict.fromkeys(numbers, 30)
        table = render_table(
            columns, rows, right_aligned=numbers, kept_widths=kept, title=self.title
        )
        return "\n".join([table, *map(wrapped, self.notes)])

    def html(self) -> str:
        """Lays the table out as HTML, without the notes."""
        return html_table(*self.shown(), title=self.title)

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Returns the columns that hold something, and the rows."""
        shown = list(self._shown())
        return [self.columns[i] for i in shown], [[row[i] for i in shown] for row in self.rows]

    def _shown(self) -> Iterator[int]:
        for i in range(len(self.columns)):
            if not i or any(row[i] not in (NOTHING, "") for row in self.rows):
                yield i
