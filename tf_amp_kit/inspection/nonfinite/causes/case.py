"""One operation with its operands, and the words that all causes share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tf_amp_kit.formats import is_float
from tf_amp_kit.inspection.nonfinite.numbers import (
    beyond,
    log_overflow_limit,
    number,
    out_of,
    overflow_limit,
)
from tf_amp_kit.inspection.nonfinite.operand import Operand


@dataclass(frozen=True)
class Case:
    """An operation whose result is not finite, in a float format.

    Attributes:
        name: TensorFlow's type of the operation, `"RealDiv"` for example.
        operands: Its operands in order, integer ones too.
        result: The result that is not finite.
        attributes: Gives an attribute by its name, or None.
    """

    name: str
    operands: tuple[Operand, ...]
    result: Operand
    attributes: Callable[[str], Any]

    @property
    def is_nan(self) -> bool:
        """Tells whether the result holds NaN."""
        return self.result.num_nan > 0

    @property
    def is_infinite(self) -> bool:
        """Tells whether the result holds infinity."""
        return self.result.num_infinite > 0

    @property
    def limit(self) -> float:
        """The smallest magnitude that overflows the result's format."""
        return overflow_limit(self.result.dtype)

    @property
    def log_limit(self) -> float:
        """The natural logarithm of `limit`."""
        return log_overflow_limit(self.result.dtype)

    @property
    def beyond(self) -> str:
        """Where the result's format overflows, as the end of a sentence."""
        return f"{beyond(self.result.dtype)}{self._also}"

    @property
    def out_of(self) -> str:
        """The largest value of the result's format, as the end of a sentence."""
        return f"{out_of(self.result.dtype)}{self._also}"

    @property
    def _also(self) -> str:
        return ", and an operand is infinite" if self.has_infinite else ""

    @property
    def floats(self) -> tuple[Operand, ...]:
        """The operands of a float dtype: no axes, sizes and labels."""
        return tuple(operand for operand in self.operands if is_float(operand.dtype))

    @property
    def has_infinite(self) -> bool:
        """Tells whether an operand is infinite, and so may be the cause just as well."""
        return any(operand.num_infinite for operand in self.operands)

    @property
    def overflows(self) -> str:
        """The verb, as certain as can be."""
        return "can overflow" if self.has_infinite else "overflows"


Explanation = Callable[[Case], str | None]


@dataclass(frozen=True)
class Family:
    """Operations that fail in the same way, and what finds out whether they did.

    Attributes:
        names: The types of the operations.
        num_operands: How many operands the explanation reads.
        explanation: Gives a sentence if it is true of the case, else None.
    """

    names: Collection[str]
    num_operands: int
    explanation: Explanation

    def explain(self, case: Case) -> str | None:
        """Gives the sentence, or None for operations and cases of other kinds."""
        if case.name not in self.names or len(case.operands) < self.num_operands:
            return None
        return self.explanation(case)


def first_of(families: Iterable[Family], case: Case) -> str | None:
    """Gives the first sentence that is true of the case."""
    sentences = (family.explain(case) for family in families)
    return next((sentence for sentence in sentences if sentence), None)


def values(operand: Operand, noun: str = "values") -> str:
    """Says which finite values an operand holds."""
    if operand.minimum == operand.maximum:
        return number(operand.minimum)
    return f"{noun} from {number(operand.minimum)} to {number(operand.maximum)}"


def several(count: int, operand: Operand, noun: str = "element") -> str:
    """Says how many values of an operand come together, and which."""
    if operand.minimum == operand.maximum:
        return f"{count} {noun}{'s' * (count != 1)} of {number(operand.minimum)}"
    return f"{count} {values(operand, noun + 's' * (count != 1))}"


def positive_infinite(operand: Operand) -> bool:
    """Tells whether an operand may hold plus infinity."""
    known = operand.num_positive_infinite
    return operand.num_infinite > 0 if known is None else known > 0


def negative_infinite(operand: Operand) -> bool:
    """Tells whether an operand may hold minus infinity."""
    known = operand.num_positive_infinite
    return operand.num_infinite > (known or 0)
