"""Says in words why an operation's result is not finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tf_amp_kit.formats import is_float
from tf_amp_kit.inspection.nonfinite.causes.case import Case, Explanation, first_of, values
from tf_amp_kit.inspection.nonfinite.causes.classes import CLASSES
from tf_amp_kit.inspection.nonfinite.causes.constants import because_of, constant_result
from tf_amp_kit.inspection.nonfinite.causes.domains import outside_domain
from tf_amp_kit.inspection.nonfinite.causes.infinities import infinite_operands
from tf_amp_kit.inspection.nonfinite.causes.normalizations import NORMALIZATIONS
from tf_amp_kit.inspection.nonfinite.causes.overflow import OVERFLOWS
from tf_amp_kit.inspection.nonfinite.causes.sums import SUMS
from tf_amp_kit.inspection.nonfinite.operand import Operand

__all__ = ["explain"]

_LISTED: Final = 3


def _by_range(case: Case) -> str | None:
    # NaN goes through sums and products: nothing need have overflowed.
    if not case.is_infinite and any(operand.num_nan for operand in case.operands):
        return None
    return first_of((*OVERFLOWS, *SUMS, *CLASSES, *NORMALIZATIONS), case)


# What is certain comes before what the ranges only allow.
_EXPLANATIONS: Final[tuple[Explanation, ...]] = (
    constant_result,
    outside_domain,
    infinite_operands,
    _by_range,
)


def explain(
    operation: str,
    operands: Sequence[Operand],
    result: Operand,
    attributes: Callable[[str], Any],
) -> str:
    """Says why an operation's result is not finite, as far as its operands tell.

    Which elements met cannot be known from ranges. What a sentence states is true
    of these operands; a cause that their ranges allow, but do not prove, is told
    as one that can be. Where nothing known is the cause, the ranges are told.

    Args:
        operation: TensorFlow's type of the operation, `"RealDiv"` for example.
        operands: Its operands in order, those of integers too.
        result: Its result, with NaN or infinities. Of a constant, and of a cast
            of one, `result.constant` is what the code says.
        attributes: Gives an attribute of the operation by name, None if it has
            no such one.

    Returns:
        One line of text that ends with a dot.

    Example:

    >>> import numpy as np
    >>> operand, result = (Operand.of(np.float16(value)) for value in (12.4, np.inf))
    >>> explain("Exp", [operand], result, lambda name: None)
    'Exp of 12.4 overflows float16 above 11.09.'
    """
    case = Case(operation, tuple(operands), result, attributes)
    if is_float(result.dtype):
        sentences = (explanation(case) for explanation in _EXPLANATIONS)
        known = next((sentence for sentence in sentences if sentence), None)
        if known is not None:
            return known
    return _ranges(case)


def _ranges(case: Case) -> str:
    """The sentence that is always true."""
    told = [_range(operand) for operand in case.operands if operand.num_elements]
    if len(told) > _LISTED:
        told[_LISTED:] = [f"{len(told) - _LISTED} more"]
    operands = f" of {' and '.join(told)}" if told else ""
    notes = (because_of(operand) for operand in case.operands if operand.num_infinite)
    return f"{case.name}{operands} is not finite{next((note for note in notes if note), '')}."


def _range(operand: Operand) -> str:
    parts = [values(operand)] if operand.num_elements and operand.largest >= 0 else []
    parts += ["infinity"] if operand.num_infinite else []
    parts += ["NaN"] if operand.num_nan else []
    return f"{operand.dtype} {', '.join(parts) or 'values'}"
