"""Divisions and powers: 0 / 0, 1 / 0, quotients and powers that overflow."""

from __future__ import annotations

import math
from typing import Final

from tf_amp_kit.inspection.nonfinite.causes.case import Case, Family, values
from tf_amp_kit.inspection.nonfinite.causes.constants import because_of
from tf_amp_kit.inspection.nonfinite.causes.domains import nearly_zero
from tf_amp_kit.inspection.nonfinite.causes.names import DIVISIONS
from tf_amp_kit.inspection.nonfinite.numbers import number
from tf_amp_kit.inspection.nonfinite.operand import Operand


def _division_by_zero(case: Case) -> str | None:
    numerator, divisor = case.operands[:2]
    if not divisor.num_zeros:
        return None
    if case.is_nan and numerator.num_zeros:
        return f"{case.name} by 0: 0 / 0 is NaN{because_of(divisor)}."
    if not case.is_infinite or numerator.num_elements == numerator.num_zeros:
        return None
    is_certain = not (case.has_infinite or _overflows(case, numerator, divisor))
    if is_certain or _must_meet(numerator, divisor):
        return f"{case.name} by 0 is infinite{because_of(divisor)}."
    if case.has_infinite:
        return f"{case.name} by 0 can be infinite, and an operand is infinite{because_of(divisor)}."
    return (
        f"{case.name} of {values(numerator)} by 0 or by magnitudes down to "
        f"{number(divisor.smallest)} is infinite in {case.result.dtype}{because_of(divisor)}."
    )


def _must_meet(numerator: Operand, divisor: Operand) -> bool:
    """Tells whether some other value than 0 must meet the divisor's 0."""
    return not numerator.num_zeros or divisor.num_zeros == divisor.num_elements


def _xdivy_by_zero(case: Case) -> str | None:
    divisor = case.operands[1]
    if not divisor.num_zeros or not case.is_infinite:
        return None
    return f"{case.name} by 0 of what is not 0 is infinite{because_of(divisor)}."


def _quotient(case: Case) -> str | None:
    numerator, divisor = case.operands[:2]
    if case.is_infinite and _overflows(case, numerator, divisor):
        # A subnormal divisor may have been taken for 0 with another numerator.
        verb = case.overflows if nearly_zero(divisor) is None else "can overflow"
        return f"{case.name} of {values(numerator)} by {_down_to(divisor)} {verb} {case.beyond}."
    return None if case.name == "DivNoNan" else _by_subnormal(case, divisor)


def _by_subnormal(case: Case, divisor: Operand) -> str | None:
    tiny = nearly_zero(divisor)
    if tiny is None:
        return None
    return (
        f"{case.name} by {number(tiny)} can be the cause: it is subnormal in {divisor.dtype}, "
        "and devices take such values for 0."
    )


def _overflows(case: Case, numerator: Operand, divisor: Operand) -> bool:
    # Through logarithms: the quotient itself may be too large for a Python float.
    if not numerator.largest > 0 or not divisor.smallest > 0:
        return False
    return math.log(numerator.largest) - math.log(divisor.smallest) >= case.log_limit


def _down_to(operand: Operand) -> str:
    if operand.minimum == operand.maximum:
        return number(operand.minimum)
    return f"magnitudes down to {number(operand.smallest)}"


def _reciprocal(case: Case) -> str | None:
    operand = case.operands[0]
    if not case.is_infinite or not operand.smallest > 0:
        return None
    if -math.log(operand.smallest) >= case.log_limit:
        return f"{case.name} of {_down_to(operand)} overflows {case.beyond}."
    return _by_subnormal(case, operand)


def _sqrt_gradient(case: Case) -> str | None:
    roots, gradients = case.operands[:2]
    if not case.is_infinite or not roots.smallest > 0 or not gradients.largest > 0:
        return None
    if -math.log(2 * roots.smallest) >= case.log_limit:
        return (
            f"{case.name} at {number(roots.smallest)}: the slope of the square root there "
            f"overflows {case.beyond}."
        )
    if math.log(gradients.largest / 2) - math.log(roots.smallest) < case.log_limit:
        return None
    return (
        f"{case.name} divides half the gradient ({values(gradients)}) by {_down_to(roots)}, "
        f"which {case.overflows} {case.beyond}."
    )


def _power(case: Case) -> str | None:
    base, exponent = case.operands[:2]
    if case.is_nan and base.minimum < 0 and not _is_whole(exponent):
        return (
            f"{case.name} of a negative value ({number(base.minimum)}) to "
            f"{_fraction(exponent)} is NaN."
        )
    if not case.is_infinite:
        return None
    overflow = _power_overflow(case, base, exponent)
    if base.num_zeros and exponent.minimum < 0:
        verb = "can be" if overflow or case.has_infinite else "is"
        return (
            f"{case.name} of 0 to a negative power ({number(exponent.minimum)}) {verb} "
            f"infinite{because_of(base)}."
        )
    return overflow


def _power_overflow(case: Case, base: Operand, exponent: Operand) -> str | None:
    if not base.largest > 0:
        return None
    logs = (
        exponent.maximum * math.log(base.largest),
        exponent.minimum * math.log(base.smallest),
    )
    if not max(logs) >= case.log_limit:
        return None
    return f"{case.name} of {values(base)} to {_power_of(exponent)} {case.overflows} {case.beyond}."


def _is_whole(exponent: Operand) -> bool:
    return exponent.minimum == exponent.maximum and exponent.minimum.is_integer()


def _fraction(exponent: Operand) -> str:
    if exponent.minimum == exponent.maximum:
        return f"the power {number(exponent.minimum)}"
    return "a power that is no whole number"


def _power_of(exponent: Operand) -> str:
    if exponent.minimum == exponent.maximum:
        return f"the power {number(exponent.minimum)}"
    return f"powers from {number(exponent.minimum)} to {number(exponent.maximum)}"


QUOTIENTS: Final = (
    Family(DIVISIONS, 2, _division_by_zero),
    Family(("Xdivy",), 2, _xdivy_by_zero),
    Family(DIVISIONS | {"DivNoNan", "Xdivy"}, 2, _quotient),
    Family(("Reciprocal", "Inv"), 1, _reciprocal),
    Family(("SqrtGrad",), 2, _sqrt_gradient),
    Family(("Pow",), 2, _power),
)
