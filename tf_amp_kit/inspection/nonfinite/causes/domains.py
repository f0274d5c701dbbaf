"""Operands outside of what a function is defined for: log(0), sqrt(-1), 1 / 0."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from tf_amp_kit.formats import format_of, is_float
from tf_amp_kit.inspection.nonfinite.causes.case import Case
from tf_amp_kit.inspection.nonfinite.causes.constants import because_of
from tf_amp_kit.inspection.nonfinite.numbers import number
from tf_amp_kit.inspection.nonfinite.operand import Operand

# Which value of an operand is a bad one: None if there is none for certain.
Search = Callable[[Operand], float | None]


@dataclass(frozen=True)
class Domain:
    """Values that a function is not defined for, and what it gives there.

    Attributes:
        names: The types of the operations.
        position: Which operand is meant.
        search: Finds a bad value in it.
        outcome: What such a value makes of the result.
        text: The sentence, without its dot.
    """

    names: Collection[str]
    position: int
    search: Search
    outcome: Literal["nan", "infinite", "either"]
    text: str

    def explain(self, case: Case) -> str | None:
        """Gives the sentence if the operand has such a value, and the result shows it."""
        is_so = {"nan": case.is_nan, "infinite": case.is_infinite, "either": True}
        if (
            case.name not in self.names
            or not is_so[self.outcome]
            or len(case.operands) <= self.position
        ):
            return None
        operand = case.operands[self.position]
        value = self.search(operand)
        if value is None:
            return None
        text = self.text.format(name=case.name, value=number(value), dtype=operand.dtype)
        return f"{text}{because_of(operand)}."


def zero(operand: Operand) -> float | None:
    """Finds a zero."""
    return 0.0 if operand.num_zeros else None


def nearly_zero(operand: Operand) -> float | None:
    """Finds a subnormal value of the formats in which CPUs and GPUs take it for zero."""
    if not is_float(operand.dtype) or operand.dtype == "float16" or operand.num_zeros:
        return None
    smallest = operand.smallest
    return smallest if smallest < format_of(operand.dtype).smallest_normal else None


def _below(bound: float) -> Search:
    return lambda operand: operand.minimum if operand.minimum < bound else None


def _at(bound: float) -> Search:
    return lambda operand: bound if bound in (operand.minimum, operand.maximum) else None


def _outside(low: float, high: float) -> Search:
    def search(operand: Operand) -> float | None:
        if operand.maximum > high:
            return operand.maximum
        return operand.minimum if operand.minimum < low else None

    return search


def _not_positive(operand: Operand) -> float | None:
    return operand.minimum if operand.minimum <= 0 else None


def _pole(operand: Operand) -> float | None:
    """Finds a whole number below zero, of which a range shows its ends only."""
    ends = (operand.maximum, operand.minimum)
    return next((end for end in ends if end < 0 and end.is_integer()), None)


_NEGATIVE: Final = "{name} of a negative value ({value}) is NaN"
_OUTSIDE_ONE: Final = "{name} of a value outside of -1 to 1 ({value}) is NaN"
_VANISHED: Final = (
    "{} {{value}} can be the cause: it is subnormal in {{dtype}}, "
    "and devices take such values for 0"
)

DOMAINS: Final = (
    Domain(("Log", "Sqrt", "Rsqrt"), 0, _below(0), "nan", _NEGATIVE),
    Domain(("Log1p",), 0, _below(-1), "nan", "{name} of a value below -1 ({value}) is NaN"),
    Domain(("Acosh",), 0, _below(1), "nan", "{name} of a value below 1 ({value}) is NaN"),
    Domain(("Acos", "Asin", "Atanh", "Erfinv"), 0, _outside(-1, 1), "nan", _OUTSIDE_ONE),
    Domain(
        ("Ndtri",), 0, _outside(0, 1), "nan", "{name} of a value outside of 0 to 1 ({value}) is NaN"
    ),
    Domain(("Log",), 0, zero, "infinite", "{name} of 0 is -inf"),
    Domain(("Log1p",), 0, _at(-1), "infinite", "{name} of -1 is -inf"),
    Domain(
        ("Rsqrt", "Reciprocal", "Inv", "Lgamma"), 0, zero, "infinite", "{name} of 0 is infinite"
    ),
    Domain(
        ("BesselK0", "BesselK1", "BesselK0e", "BesselK1e", "BesselY0", "BesselY1"),
        0,
        _not_positive,
        "infinite",
        "{name} of a value that is not positive ({value}) is infinite",
    ),
    Domain(("Atanh", "Erfinv"), 0, _at(1), "infinite", "{name} of 1 is inf"),
    Domain(("Atanh", "Erfinv"), 0, _at(-1), "infinite", "{name} of -1 is -inf"),
    Domain(("Ndtri",), 0, zero, "infinite", "{name} of 0 is -inf"),
    Domain(("Ndtri",), 0, _at(1), "infinite", "{name} of 1 is inf"),
    Domain(("Lgamma",), 0, _pole, "infinite", "{name} of {value}, a pole, is infinite"),
    Domain(("Digamma",), 0, zero, "nan", "{name} of 0, a pole, is NaN"),
    Domain(("Digamma",), 0, _pole, "nan", "{name} of {value}, a pole, is NaN"),
    Domain(
        ("Xlogy",),
        1,
        _below(0),
        "nan",
        "{name}: the logarithm of a negative value ({value}) is NaN",
    ),
    Domain(
        ("Xlogy",),
        1,
        zero,
        "infinite",
        "{name}: the logarithm of 0 is -inf where its factor is not 0",
    ),
    Domain(
        ("Xlog1py",), 1, _below(-1), "nan", "{name}: log1p of a value below -1 ({value}) is NaN"
    ),
    Domain(
        ("Xlog1py",),
        1,
        _at(-1),
        "infinite",
        "{name}: log1p of -1 is -inf where its factor is not 0",
    ),
    Domain(("FloorMod", "Mod", "TruncateMod"), 1, zero, "nan", "{name} by 0 is NaN"),
    Domain(
        # NaN where the gradient is 0 too, or halving it makes it 0.
        ("SqrtGrad",),
        0,
        zero,
        "either",
        "{name} at 0: the slope of the square root there is infinite",
    ),
    Domain(("Log", "Rsqrt"), 0, nearly_zero, "infinite", _VANISHED.format("{name} of")),
    Domain(("Xlogy",), 1, nearly_zero, "infinite", _VANISHED.format("{name} of the logarithm of")),
    Domain(
        ("FloorMod", "Mod", "TruncateMod"), 1, nearly_zero, "nan", _VANISHED.format("{name} by")
    ),
)


def outside_domain(case: Case) -> str | None:
    """Finds an operand for which the operation is not defined."""
    sentences = (domain.explain(case) for domain in DOMAINS)
    return next((sentence for sentence in sentences if sentence), None)
