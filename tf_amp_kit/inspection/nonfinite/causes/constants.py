"""Constants that are another number in half precision than in the code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tf_amp_kit.formats import HALF_PRECISIONS, is_half, round_trip
from tf_amp_kit.inspection.nonfinite.causes.case import Case
from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.inspection.rules.values import shortest

_EPSILON_FIX: Final = "Use tf_amp_kit.safe_epsilon"
_MASK_FIX: Final = "Use tf_amp_kit.safe_mask_value"


def constant_result(case: Case) -> str | None:
    """A constant of the code that the format cannot hold, or that is not finite itself."""
    constant = case.result.constant
    if constant is not None and case.is_infinite:
        rounded = float(round_trip(constant, case.result.dtype))
        if math.isinf(rounded) and math.isfinite(constant):
            text = f"{case.name}: {shortest(constant)} is {rounded} in {case.result.dtype}"
            return f"{text}. {_MASK_FIX}."
    if case.name == "Const":
        return f"Const holds {'NaN' if case.is_nan else 'infinity'}."
    return None


def because_of(operand: Operand) -> str:
    """Names the changed constant behind an operand's zero or infinity.

    Args:
        operand: The operand that an explanation has found fault with.

    Returns:
        The end of a sentence, without its dot, or `""`.
    """
    constant = operand.constant
    if constant is None or not math.isfinite(constant):
        return ""
    place = f" ({operand.constant_source})" if operand.constant_source else ""
    text = f"the constant {shortest(constant)}{place}"
    where = _formats(operand, lambda rounded: rounded == 0 != constant)
    if where and operand.num_zeros:
        return f"; {text} that should prevent it is 0 in {where}. {_EPSILON_FIX}"
    where = _formats(operand, math.isinf)
    if where and operand.num_infinite:
        infinity = math.copysign(math.inf, constant)
        return f"; {text} is {infinity} in {where}. {_MASK_FIX}"
    where = _formats(operand, lambda rounded: rounded in (1, -1) and rounded != constant)
    return f"; {text} is {round(constant)} in {where}" if where else ""


def _formats(operand: Operand, is_so: Callable[[float], bool]) -> str:
    """Names the half formats in which a constant became something, `""` if in none.

    A float32 operand may come from a half one: then either may be meant.
    """
    formats = (operand.dtype,) if is_half(operand.dtype) else HALF_PRECISIONS
    names = [name for name in formats if is_so(float(round_trip(operand.constant or 0.0, name)))]
    return names[0] if len(names) == 1 else "half precision" if names else ""
