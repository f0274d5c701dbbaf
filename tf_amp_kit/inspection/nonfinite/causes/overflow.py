"""Elementwise results beyond a format: casts, exponentials, products, sums of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tf_amp_kit.inspection.nonfinite.causes.case import Case, Family, values
from tf_amp_kit.inspection.nonfinite.causes.quotients import QUOTIENTS
from tf_amp_kit.inspection.nonfinite.numbers import apart, number
from tf_amp_kit.inspection.nonfinite.operand import Operand


def _beyond_limit(operand: Operand, limit: float) -> float | None:
    """Finds a value of at least a limit in magnitude."""
    if operand.maximum >= limit:
        return operand.maximum
    return operand.minimum if operand.minimum <= -limit else None


def _cast(case: Case) -> str | None:
    value = _beyond_limit(case.operands[0], case.limit)
    if value is None or not case.is_infinite:
        return None
    text, limit = apart(value, math.copysign(case.limit, value))
    return f"{case.name} of {text} overflows {case.result.dtype} from {limit} on."


# The operand from which a function overflows, by the logarithm of the limit.
# Where the 1 of expm1 and the other half of sinh count, they are below float16's
# rounding: 65521 and 65520 + 1/65520 in place of 65520.
_INVERSES: Final[Mapping[str, Callable[[float], float]]] = {
    "Exp": lambda log_limit: log_limit,
    "Expm1": lambda log_limit: log_limit + math.log1p(math.exp(-log_limit)),
    "Sinh": lambda log_limit: log_limit + math.log(2),
    "Cosh": lambda log_limit: log_limit + math.log(2),
}


def _exponential(case: Case) -> str | None:
    operand, limit = case.operands[0], _INVERSES[case.name](case.log_limit)
    if not case.is_infinite:
        return None
    if operand.maximum > limit:
        value, edge = apart(operand.maximum, limit)
        return f"{case.name} of {value} overflows {case.result.dtype} above {edge}."
    if case.name in ("Sinh", "Cosh") and operand.minimum < -limit:
        value, edge = apart(operand.minimum, -limit)
        return f"{case.name} of {value} overflows {case.result.dtype} below {edge}."
    return None


# By how much a function or its gradient can exceed its operand: selu's scale,
# and its slope just below zero, scale times alpha. LeakyRelu's is an attribute.
_SELU_SCALE: Final = 1.0507009873554805
_SELU_SLOPE: Final = 1.7580993408473766


def _scaled(case: Case) -> str | None:
    factor = {"Selu": _SELU_SCALE, "SeluGrad": _SELU_SLOPE}.get(case.name)
    if factor is None:
        factor = max(1.0, abs(float(case.attributes("alpha") or 0.0)))
    operand = case.operands[0]
    if not case.is_infinite or not operand.largest * factor >= case.limit:
        return None
    return (
        f"{case.name} of {values(operand)} times up to {number(factor)} {case.overflows} "
        f"{case.beyond}."
    )


def _product(case: Case) -> str | None:
    one, other = case.operands[:2]
    if not case.is_infinite or not _log_product(one, other) >= case.log_limit:
        return None
    return f"{case.name} of {values(one)} and {values(other)} {case.overflows} {case.beyond}."


def _square(case: Case) -> str | None:
    value = _beyond_limit(case.operands[0], math.exp(case.log_limit / 2))
    if value is None or not case.is_infinite:
        return None
    text, limit = apart(value, math.copysign(math.exp(case.log_limit / 2), value))
    return f"{case.name} of {text} overflows {case.result.dtype} from {limit} on."


def _squared_difference(case: Case) -> str | None:
    one, other = case.operands[:2]
    largest = max(one.maximum - other.minimum, other.maximum - one.minimum)
    limit = math.exp(case.log_limit / 2)
    if not case.is_infinite or not largest >= limit:
        return None
    difference, edge = apart(largest, limit)
    return (
        f"{case.name} of {values(one)} and {values(other)}: the square of a difference of up to "
        f"{difference} {case.overflows} {case.result.dtype} from {edge} on."
    )


def _sum(case: Case) -> str | None:
    floats = case.floats
    if not sum(operand.largest for operand in floats) >= case.limit or len(floats) < 2:
        return None
    # Of more than two operands it may be a partial sum that overflows.
    if len(floats) == 2 and not _two_overflow(case, *floats):
        return None
    if len(floats) > 3:
        largest = max(operand.largest for operand in floats)
        return (
            f"{case.name} of {len(floats)} operands with magnitudes up to {number(largest)} "
            f"{case.overflows} {case.beyond}."
        )
    terms = " and ".join(values(operand) for operand in floats)
    return f"{case.name} of {terms} {case.overflows} {case.beyond}."


def _two_overflow(case: Case, one: Operand, other: Operand) -> bool:
    low, high = other.minimum, other.maximum
    if case.name == "Sub":
        low, high = -high, -low
    return case.is_infinite and (
        one.maximum + high >= case.limit or one.minimum + low <= -case.limit
    )


def _gradient_of_inverse(case: Case) -> str | None:
    outputs, gradients = case.operands[:2]
    power, words = {"RsqrtGrad": (3, "half the cube")}.get(case.name, (2, "the square"))
    if not case.is_infinite or not outputs.largest > 0 or not gradients.largest > 0:
        return None
    log_output = math.log(outputs.largest)
    log_result = power * log_output + math.log(gradients.largest / (power - 1))
    # The square may overflow on the way, however small the gradient is.
    if max(log_result, 2 * log_output) < case.log_limit:
        return None
    return (
        f"{case.name} multiplies the gradient ({values(gradients)}) by {words} of "
        f"{values(outputs)}, which {case.overflows} {case.beyond}."
    )


def _gradient_of_bounded(case: Case) -> str | None:
    """Outputs beyond those of the function: y * (1 - y) is a slope from 0 to 1 only."""
    outputs, gradients = case.operands[:2]
    if not case.is_infinite or not outputs.largest > 1 or not gradients.largest > 0:
        return None
    if 2 * math.log(outputs.largest) + max(math.log(gradients.largest), 0) < case.log_limit:
        return None
    return (
        f"{case.name} multiplies the gradient ({values(gradients)}) by the slope at outputs of "
        f"{values(outputs)}, which {case.overflows} {case.beyond}."
    )


def _logarithmic(case: Case) -> str | None:
    """Lgamma, which grows faster than its operand."""
    value = case.operands[0].maximum
    if not case.is_infinite or not value > 2 or math.lgamma(value) < case.limit:
        return None
    return f"{case.name} of {number(value)} overflows {case.beyond}."


def _log_product(one: Operand, other: Operand) -> float:
    """The logarithm of the largest product, which float64 itself may not hold."""
    if not one.largest > 0 or not other.largest > 0:
        return -math.inf
    return math.log(one.largest) + math.log(other.largest)


def _times_logarithm(case: Case) -> str | None:
    factor, operand = case.operands[:2]
    if not case.is_infinite or not factor.largest > 0 or not operand.largest > 0:
        return None
    if case.name == "Xlog1py":
        logs = [math.log1p(end) for end in (operand.minimum, operand.maximum) if end > -1]
    else:
        logs = [math.log(operand.smallest), math.log(operand.largest)]
    steepest = max(map(abs, logs), default=0.0)
    if not steepest * factor.largest >= case.limit:
        return None
    return (
        f"{case.name} of {values(factor)} and a logarithm of up to {number(steepest)} in "
        f"magnitude {case.overflows} {case.beyond}."
    )


OVERFLOWS: Final = (
    Family(("Xlogy", "Xlog1py"), 2, _times_logarithm),
    Family(("Cast",), 1, _cast),
    Family(tuple(_INVERSES), 1, _exponential),
    Family(("Selu", "SeluGrad", "LeakyRelu", "LeakyReluGrad"), 1, _scaled),
    Family(("Mul", "MulNoNan"), 2, _product),
    Family(("Square",), 1, _square),
    Family(("SquaredDifference",), 2, _squared_difference),
    Family(("Add", "AddV2", "AddN", "BiasAdd", "Sub"), 2, _sum),
    Family(("RsqrtGrad", "ReciprocalGrad", "InvGrad"), 2, _gradient_of_inverse),
    Family(("SigmoidGrad", "TanhGrad"), 2, _gradient_of_bounded),
    Family(("Lgamma",), 1, _logarithmic),
    *QUOTIENTS,
)
