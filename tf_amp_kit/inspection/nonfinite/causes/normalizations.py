"""Batch normalization, whose statistics TensorFlow keeps in float32."""

from __future__ import annotations

import math
from typing import Final

from tf_amp_kit.inspection.nonfinite.causes.case import Case, Family, several, values
from tf_amp_kit.inspection.nonfinite.numbers import number, out_of, overflow_limit

_STATISTICS: Final = "float32"
_EPSILON: Final = 1e-4  # The operation's own default


def _negative_variance(case: Case) -> str | None:
    variance = case.operands[4]
    if _is_training(case) or not case.is_nan or not variance.minimum + _epsilon(case) < 0:
        return None
    return f"{case.name} with a negative variance ({number(variance.minimum)}) is NaN."


def _no_variance(case: Case) -> str | None:
    """A variance of exactly 0 is certain for one element per channel, or equal ones."""
    x, variance = case.operands[0], case.operands[4]
    if _epsilon(case) > 0:
        return None
    if not _is_training(case):
        if not variance.num_zeros:
            return None
        return f"{case.name} with a variance of 0 and an epsilon of 0 divides by 0."
    count = _num_averaged(case)
    if count > 1 and x.minimum != x.maximum:
        return None
    where = f"over {several(count, x)}" if count > 1 else "over one element per channel"
    return f"{case.name} {where}: the variance is 0 and epsilon too, and 0 / 0 is NaN."


def _variance_overflow(case: Case) -> str | None:
    x, limit = case.operands[0], overflow_limit(_STATISTICS)
    spread = (x.maximum - x.minimum) / 2
    if not _is_training(case) or not (spread * spread >= limit or _sum_overflows(case)):
        return None
    return (
        f"{case.name}: the variance of {values(x)} can overflow {out_of(_STATISTICS)}, in which "
        "it is computed."
    )


def _sum_overflows(case: Case) -> bool:
    return case.operands[0].largest * _num_averaged(case) >= overflow_limit(_STATISTICS)


def _output_overflow(case: Case) -> str | None:
    x, scale, offset, mean, variance = case.operands[:5]
    if not case.is_infinite:
        return None
    if _is_training(case):
        # One value far from all others is normalized to the root of n - 1.
        reach = math.sqrt(max(_num_averaged(case) - 1, 0))
    else:
        reach = (x.largest + mean.largest) / math.sqrt(
            max(variance.minimum + _epsilon(case), 1e-45)
        )
    if not reach * scale.largest + offset.largest >= case.limit:
        return None
    return (
        f"{case.name}: normalized values up to {number(reach)} times a scale of {values(scale)} "
        f"plus an offset of {values(offset)} {case.overflows} {case.beyond}."
    )


def _gradient_overflow(case: Case) -> str | None:
    gradients, _, scale = case.operands[:3]
    epsilon = _epsilon(case)
    if not case.is_infinite or not epsilon > 0:
        return None
    steepest = scale.largest / math.sqrt(epsilon)
    if not gradients.largest * max(steepest, 1.0) >= case.limit:
        return None
    return (
        f"{case.name} multiplies the gradient ({values(gradients)}) by the scale over the "
        f"standard deviation, which is up to {number(steepest)}: that can overflow "
        f"{case.beyond}."
    )


def _gradient_sums(case: Case) -> str | None:
    gradients, x = case.operands[:2]
    count = _num_averaged(case)
    products = gradients.largest * max(2 * x.largest, 1.0) * count
    if not products >= overflow_limit(_STATISTICS):
        return None
    return (
        f"{case.name}: sums of {several(count, gradients, 'gradient')} times the centred "
        f"{values(x)} can overflow {out_of(_STATISTICS)}, in which they are computed."
    )


def _is_training(case: Case) -> bool:
    # Only an attribute that is there and false says otherwise.
    return case.attributes("is_training") in (None, True)


def _epsilon(case: Case) -> float:
    epsilon = case.attributes("epsilon")
    return _EPSILON if epsilon is None else float(epsilon)


def _num_averaged(case: Case) -> int:
    """Counts the elements of each channel; the scale has one element per channel."""
    is_gradient = "Grad" in case.name
    scale = case.operands[2 if is_gradient else 1]
    return case.operands[0].num_elements // max(scale.num_elements, 1)


_FORWARD: Final = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_BACKWARD: Final = ("FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3")

NORMALIZATIONS: Final = (
    Family(_FORWARD, 5, _negative_variance),
    Family(_FORWARD, 5, _no_variance),
    Family(_FORWARD, 5, _variance_overflow),
    Family(_FORWARD, 5, _output_overflow),
    Family(_BACKWARD, 3, _gradient_overflow),
    Family(_BACKWARD, 3, _gradient_sums),
)
