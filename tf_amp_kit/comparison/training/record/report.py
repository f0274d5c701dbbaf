"""The record of a comparison of precisions."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from tf_amp_kit.comparison.stored import as_plain, read_as, read_file, written
from tf_amp_kit.comparison.training.record import words
from tf_amp_kit.comparison.training.record.parts import (
    WORSE,
    PrecisionResult,
    Recommendation,
    TrainingRun,
)
from tf_amp_kit.comparison.training.record.tables import tables
from tf_amp_kit.errors import ReportError, SelectionError
from tf_amp_kit.tables import some, wrapped

__all__ = ["INTERRUPTION", "ComparisonReport"]

#: What a report notes that Ctrl-C ended early.
INTERRUPTION: Final = "It was interrupted: what is missing was not measured."

_FORMAT: Final = "tf_amp_kit comparison"
_VERSION: Final = 1


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonReport:
    """The same model trained in several precisions: quality, speed and memory.

    Printing it tells the recommendation first, then a verdict per precision with its
    reasons, then the tables.

    Attributes:
        model_name: The model's name.
        machine: The device, TensorFlow and Keras that it was made with.
        batch_size: How many samples the first batch holds.
        num_steps: How many steps each run was to take.
        seeds: The seeds of every precision.
        tolerance: The loss of quality that is accepted in any case, as a share of what
            float32 learned.
        measure: What the verdicts are about: `"val_loss"`, or `"loss"` without
            validation data.
        results: One per precision, float32 first.
        runs: All runs, also those of float32 alone that measured its spread.
        recommendation: What to train with.
        seconds: How long the comparison took.
        notes: What else there is to know, in sentences.

    Example:

    >>> from tf_amp_kit.comparison.training.record.parts import Difference, Verdict
    >>> loss = Difference("loss", 0.5, 0.01, 0.503, 0.003, 0.05, 0.002)
    >>> equal = Verdict("equal", ("Worse by 0.2 % of what float32 learned.",), 0.002)
    >>> report = ComparisonReport(
    ...     model_name="net",
    ...     machine="2 CPUs",
    ...     batch_size=32,
    ...     num_steps=100,
    ...     seeds=(0,),
    ...     tolerance=0.01,
    ...     measure="loss",
    ...     results=(
    ...         PrecisionResult("float32", "float32", "O0", 0, None, ()),
    ...         PrecisionResult("bfloat16", "bfloat16", "O1", 1, equal, (loss,)),
    ...     ),
    ...     runs=(),
    ...     recommendation=Recommendation("float32", None, None, ("Not timed.",)),
    ...     seconds=1.5,
    ... )
    >>> report.result("bfloat16").verdict.outcome, report.worse
    ('equal', ())
    """

    model_name: str
    machine: str
    batch_size: int
    num_steps: int
    seeds: tuple[int, ...]
    tolerance: float
    measure: str
    results: tuple[PrecisionResult, ...]
    runs: tuple[TrainingRun, ...]
    recommendation: Recommendation
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[str, ...]:
        """The names of the precisions that train worse than float32."""
        return self._with_outcome(WORSE)

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended it early."""
        return INTERRUPTION in self.notes

    def _with_outcome(self, outcome: str) -> tuple[str, ...]:
        judged = ((one.name, one.verdict) for one in self.results)
        return tuple(name for name, verdict in judged if verdict and verdict.outcome == outcome)

    def result(self, name: str) -> PrecisionResult:
        """Returns what one precision came to.

        Args:
            name: Its name in the report: `"bfloat16"`, `"float16 O2"`.

        Raises:
            SelectionError: If there is none of this name.
        """
        for one in self.results:
            if one.name == name:
                return one
        raise SelectionError(
            f"Unknown precision. Expected one of {some([one.name for one in self.results], 9)}. "
            f"Received: name={name!r}."
        )

    def runs_of(self, name: str) -> list[TrainingRun]:
        """Returns the runs of one precision, in the order of seeds."""
        self.result(name)
        return [run for run in self.runs if run.name == name]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComparisonReport):
            return NotImplemented
        # NaN is equal to no NaN: a run with one would differ from itself, read from a file.
        return bool(written(self) == written(other))

    # The values of an evaluation are a mapping, which has no hash.
    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Lays out what is printed: the recommendation, the verdicts, the tables, the notes."""
        parts = [
            _paragraph(words.recommendation(self)),
            _paragraph(words.verdicts(self)),
            *(table.text() for table in tables(self)),
            _paragraph(self._remarks()),
        ]
        return "\n\n".join(part for part in parts if part)

    def _remarks(self) -> list[str]:
        return [*words.circumstances(self), *(f"Note: {one}" for one in self.notes)]

    def __repr__(self) -> str:
        outcomes = "".join(
            f", {one.name} {one.verdict.outcome}" for one in self.results if one.verdict
        )
        return f"<ComparisonReport of {self.model_name!r}{outcomes}>"

    def _repr_html_(self) -> str:
        laid_out = list(tables(self))
        above = [*words.recommendation(self), *words.verdicts(self)]
        below = [*(note for table in laid_out for note in table.notes), *self._remarks()]
        html = "".join(table.html() for table in laid_out)
        return f"{_html_paragraphs(above)}{html}{_html_paragraphs(below)}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as strict JSON, for `load` and for other programs.

        Numbers that are not finite are written as `"Infinity"` and `"NaN"`.

        Args:
            path: Where to; an existing file is replaced.
        """
        content = {"format": _FORMAT, "version": _VERSION, **written(self)}
        Path(path).write_text(f"{json.dumps(content, allow_nan=False)}\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ComparisonReport:
        """Reads what `save` wrote.

        Args:
            path: The file.

        Returns:
            A report equal to the one that was saved, gradients included.

        Raises:
            ReportError: If the file holds something else.
            OSError: If it cannot be read.
        """
        return read_file(
            path,
            _parsed,
            expected="The file holds no comparison of precisions. Expected JSON that "
            f"`ComparisonReport.save` wrote, version {_VERSION}.",
            error_class=ReportError,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as a dictionary for strict JSON; None for what is not finite."""
        plain: dict[str, Any] = as_plain(self)
        return plain

    def to_json(self) -> str:
        """Returns the record as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)


def _parsed(content: Any) -> ComparisonReport:
    if not isinstance(content, dict):
        raise TypeError("no JSON object")
    if (content.get("format"), content.get("version")) != (_FORMAT, _VERSION):
        raise ValueError(f"format {content.get('format')!r}, version {content.get('version')!r}")
    report: ComparisonReport = read_as(content, ComparisonReport, "report")
    if not report.results:
        raise ValueError("no results")
    return report


def _paragraph(sentences: Iterable[str]) -> str:
    return "\n".join(wrapped(one) for one in sentences if one)


def _html_paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(one)}</p>" for one in sentences)
