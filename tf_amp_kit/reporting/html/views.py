"""What a page shows of a record, before it is HTML."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["FINE", "LOOK", "NEUTRAL", "PROBLEM", "Cell", "Figure", "Section", "Table", "sort_key"]

#: How a record judges a model, from bad to good; the last one does not judge.
PROBLEM: Final = "problem"
LOOK: Final = "look"
FINE: Final = "fine"
NEUTRAL: Final = "neutral"

# How columns are called that hold paths of layers, or of what belongs to one.
_OF_LAYERS: Final = frozenset({"Layer", "Tensor", "Gradient of"})

_LONGEST_WORDS: Final = 60

_NUMBER: Final = re.compile(
    r"(?P<power>2\^)?(?P<value>[-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)(?: (?P<unit>[KMGT]iB))?"
)
_UNITS: Final = {None: 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: What it says.
        code: A line of code below it, if any.
    """

    text: str
    code: str = ""


@dataclass(frozen=True)
class Table:
    """A table that can be sorted and filtered.

    Attributes:
        title: What it shows.
        columns: The headers; the first one names what a row is about.
        rows: One cell, or text, per column.
        notes: Sentences below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    notes: Sequence[str] = ()

    @property
    def path_column(self) -> int | None:
        """Which column holds paths of layers, which the search of the page goes through."""
        columns = enumerate(self.columns)
        return next((place for place, name in columns if name in _OF_LAYERS), None)

    @property
    def is_prose(self) -> bool:
        """Whether it holds sentences, which a narrow screen shows below each other."""
        return any(len(cell.text) > _LONGEST_WORDS for row in self.cells() for cell in row)

    def cells(self) -> list[list[Cell]]:
        """Returns the rows as cells, each complete: where records leave out what the row above
        has in its first columns, it is there, so that rows can change places.
        """
        rows: list[list[Cell]] = []
        for row in self.rows:
            cells = [Cell(one) if isinstance(one, str) else one for one in row]
            num_left_out = len(list(itertools.takewhile(_is_empty, cells))) if rows else 0
            rows.append([*rows[-1][:num_left_out], *cells[num_left_out:]] if rows else cells)
        return rows


@dataclass(frozen=True)
class Figure:
    """A figure, or why there is none.

    Attributes:
        title: What it shows, for those who do not see it.
        svg: The picture; empty if there is none.
        missing: Why there is none.
    """

    title: str
    svg: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Section:
    """What a page shows of one record.

    Attributes:
        title: What kind of record it is, and of which model.
        status: `PROBLEM`, `LOOK`, `FINE` or `NEUTRAL`.
        verdict: What the record comes to, in a sentence.
        sentences: What else it says.
        tables: Its tables.
        figures: Its figures.
    """

    title: str
    status: str
    verdict: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


def _is_empty(cell: Cell) -> bool:
    return not cell.text


def sort_key(text: str) -> float | None:
    """Returns the number that a cell begins with, in bytes for sizes; None for words.

    Example:

    >>> [sort_key(one) for one in ("9", "10 %", "1.5 MiB", "2^-3.0", "dense")]
    [9.0, 10.0, 1572864.0, 0.125, None]
    """
    is_less = text.startswith("<")
    found = _NUMBER.match(text.lstrip("<>"))
    if found is None:
        return None
    value = float(found["value"])
    if found["power"]:
        return float(2.0 ** max(min(value, 1023.0), -1074.0))
    value *= _UNITS[found["unit"]]
    # Just below what it is less than.
    return value * (1 - 2e-6) if is_less else value if math.isfinite(value) else None
