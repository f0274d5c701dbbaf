"""Infinite operands that meet: inf - inf, 0 * inf, inf / inf."""

from __future__ import annotations

from typing import Final

from tf_amp_kit.inspection.nonfinite.causes.case import (
    Case,
    Family,
    negative_infinite,
    positive_infinite,
)
from tf_amp_kit.inspection.nonfinite.causes.constants import because_of
from tf_amp_kit.inspection.nonfinite.causes.names import (
    ACTIVATION_GRADIENTS,
    CONTRACTIONS,
    DIVISIONS,
    REDUCED_PRODUCTS,
    REDUCED_SUMS,
)
from tf_amp_kit.inspection.nonfinite.operand import Operand


def infinite_operands(case: Case) -> str | None:
    """Finds infinite operands that make NaN."""
    if not case.is_nan or not any(operand.num_infinite for operand in case.floats):
        return None
    return next((text for family in _FAMILIES if (text := family.explain(case))), None)


def _difference(case: Case) -> str | None:
    if not all(operand.num_infinite for operand in case.operands[:2]):
        return None
    return f"{case.name} of two infinities of the same sign is NaN{_because(case)}."


def _sum(case: Case) -> str | None:
    if sum(operand.num_infinite > 0 for operand in case.operands) < 2:
        return None
    return f"{case.name} of inf and -inf is NaN{_because(case)}."


def _product(case: Case) -> str | None:
    if not _zero_meets_infinity(case):
        return None
    return f"{case.name} of 0 and infinity is NaN{_because(case)}."


def _quotient(case: Case) -> str | None:
    pair = case.operands[:2]
    if not all(operand.num_infinite for operand in pair):
        return None
    if all(operand.num_zeros for operand in pair) and case.name != "DivNoNan":
        return f"{case.name}: 0 / 0 or infinity by infinity is NaN{_because(case)}."
    return f"{case.name} of infinity by infinity is NaN{_because(case)}."


def _remainder(case: Case) -> str | None:
    return f"{case.name} of infinity is NaN." if case.operands[0].num_infinite else None


def _of_infinity(case: Case) -> str | None:
    return f"{case.name} of infinity is NaN{_because(case)}."


def _of_negative_infinity(case: Case) -> str | None:
    if not negative_infinite(case.operands[0]):
        return None
    return f"{case.name} of -inf is NaN{_because(case)}."


def _reduced_sum(case: Case) -> str | None:
    operand = case.operands[0]
    if not positive_infinite(operand) or not negative_infinite(operand) or operand.num_infinite < 2:
        return None
    return f"{case.name} over inf and -inf is NaN{_because(case)}."


def _reduced_product(case: Case) -> str | None:
    operand = case.operands[0]
    if not operand.num_infinite or not operand.num_zeros:
        return None
    return f"{case.name} over 0 and infinity is NaN{_because(case)}."


def _contraction(case: Case) -> str | None:
    if _zero_meets_infinity(case):
        also = " or a sum of inf and -inf" if _can_differ(case) else ""
        return f"{case.name}: 0 times infinity{also} is NaN{_because(case)}."
    return f"{case.name}: a sum of inf and -inf is NaN{_because(case)}."


def _can_differ(case: Case) -> bool:
    """Tells whether products of both infinite signs can meet."""
    return sum(operand.num_infinite for operand in case.floats) > 1


def _logarithm_of_negative(case: Case) -> str | None:
    if not negative_infinite(case.operands[1]):
        return None
    return f"{case.name}: the logarithm of -inf is NaN{because_of(case.operands[1])}."


def _gradient(case: Case) -> str | None:
    places, gradients = case.operands[:2]
    if case.name not in _OUTPUTS_FIRST:
        places, gradients = gradients, places
    if not gradients.num_infinite or not _can_be_flat(case, places):
        return None
    return f"{case.name} of an infinite gradient: 0 times infinity is NaN."


def _can_be_flat(case: Case, places: Operand) -> bool:
    """Tells whether an activation's slope is 0 at some place: an output or an input of it."""
    if case.name == "ReluGrad":
        return places.minimum <= 0
    if case.name == "SoftplusGrad":
        # Its kernel divides by 1 + exp(-x).
        return places.minimum < -case.log_limit
    flat = {"EluGrad": (-1.0,), "SigmoidGrad": (0.0, 1.0), "TanhGrad": (-1.0, 1.0)}
    return any(value in flat[case.name] for value in (places.minimum, places.maximum))


def _zero_meets_infinity(case: Case) -> bool:
    floats = case.floats[:2]
    return any(
        one.num_zeros and other.num_infinite
        for one, other in (floats, floats[::-1])
        if len(floats) == 2
    )


def _because(case: Case) -> str:
    """Names the first changed constant behind an infinity."""
    texts = (because_of(operand) for operand in case.floats if operand.num_infinite)
    return next((text for text in texts if text), "")


_BOUNDED: Final = ("Sin", "Cos", "Tan", "Acos", "Asin", "Atanh", "Erfinv", "Ndtri", "Softsign")
# Gradients of these take the activation's output before the gradient.
_OUTPUTS_FIRST: Final = frozenset({"SigmoidGrad", "TanhGrad"})

_FAMILIES: Final = (
    Family(("Sub", "SquaredDifference"), 2, _difference),
    Family(("Add", "AddV2", "AddN", "BiasAdd"), 2, _sum),
    Family(("Mul", "MulNoNan", "RsqrtGrad", "ReciprocalGrad", "InvGrad"), 2, _product),
    Family((*DIVISIONS, "DivNoNan", "Xdivy", "SqrtGrad"), 2, _quotient),
    Family(("FloorMod", "Mod", "TruncateMod"), 2, _remainder),
    Family(_BOUNDED, 1, _of_infinity),
    Family(("Xlogy", "Xlog1py"), 2, _logarithm_of_negative),
    Family(("Log", "Log1p", "Sqrt", "Rsqrt", "Acosh"), 1, _of_negative_infinity),
    Family(REDUCED_SUMS, 1, _reduced_sum),
    Family(REDUCED_PRODUCTS, 1, _reduced_product),
    Family(CONTRACTIONS, 2, _contraction),
    Family(ACTIVATION_GRADIENTS, 2, _gradient),
)
