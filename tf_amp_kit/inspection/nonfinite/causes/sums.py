"""Sums of many: reductions, products along axes, matrix products, convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from tf_amp_kit.inspection.nonfinite.causes.case import Case, Family, several, values
from tf_amp_kit.inspection.nonfinite.causes.names import (
    CONTRACTIONS,
    CONVOLUTIONS,
    INPUT_GRADIENTS,
    MATMULS,
    REDUCED_PRODUCTS,
    REDUCED_SUMS,
)
from tf_amp_kit.inspection.nonfinite.operand import Operand

_SQUARING: Final = frozenset({"EuclideanNorm", "L2Loss"})
_CUMULATIVE: Final = frozenset({"Cumprod", "Cumsum"})
_POOLING: Final = frozenset({"AvgPool", "AvgPool3D"})
_NOTHING: Final = {"Mean": "NaN", "Max": "-inf", "Min": "inf"}


def _of_nothing(case: Case) -> str | None:
    if case.operands[0].num_elements or not case.result.num_elements:
        return None
    return f"{case.name} of no elements is {_NOTHING[case.name]}."


def _reduced_sum(case: Case) -> str | None:
    operand, count = case.operands[0], _num_reduced(case)
    if not operand.largest > 0 or not count:
        return None
    log_term = math.log(operand.largest)
    if case.name in _SQUARING:
        log_term *= 2
    if math.log(count) + log_term < case.log_limit:
        return None
    at_most = "up to " * _is_at_most(case)
    terms = f"{at_most}{several(count, operand)}"
    if case.name in _SQUARING:
        terms = f"the squares of {terms}"
    if case.name in ("Mean", *_POOLING):
        return f"{case.name} sums {terms}, which {case.overflows} {case.out_of}."
    return f"{case.name} of {terms} {case.overflows} {case.out_of}."


def _reduced_product(case: Case) -> str | None:
    operand, count = case.operands[0], _num_reduced(case)
    if not operand.largest > 0 or count * math.log(operand.largest) < case.log_limit:
        return None
    at_most = "up to " * _is_at_most(case)
    return f"{case.name} of {at_most}{several(count, operand)} {case.overflows} {case.out_of}."


def _is_at_most(case: Case) -> bool:
    """Tells whether elements of the result come from fewer elements, too."""
    return case.name in _CUMULATIVE | _POOLING or "Segment" in case.name


def _num_reduced(case: Case) -> int:
    """Counts how many elements come together in one element of the result, at most."""
    operand = case.operands[0]
    if case.name in _POOLING:
        return math.prod(int(size) for size in case.attributes("ksize") or ())
    if case.name in _CUMULATIVE:
        axis = case.operands[1].minimum if len(case.operands) > 1 else math.nan
        return _size(operand.shape, int(axis) if math.isfinite(axis) else None)
    if "Segment" in case.name and len(case.operands) > 1:
        return case.operands[1].num_elements
    if case.name == "L2Loss":
        return operand.num_elements
    return operand.num_elements // max(case.result.num_elements, 1)


def _contraction(case: Case) -> str | None:
    one, other = _factors(case)
    count = num_products(case)
    if not one.largest > 0 or not other.largest > 0 or not count:
        return None
    log_product = math.log(one.largest) + math.log(other.largest)
    if math.log(count) + log_product < case.log_limit:
        return None
    factors = f"{values(one)} and {values(other)}"
    if count == 1 or log_product >= case.log_limit:
        return f"{case.name}: a product of {factors} {case.overflows} {case.out_of}."
    verb = case.overflows.replace("overflows", "overflow")
    at_most = "up to " if case.name in INPUT_GRADIENTS else ""
    return f"{case.name}: sums of {at_most}{count} products of {factors} {verb} {case.out_of}."


def _einsum_of_one(case: Case) -> str | None:
    """An einsum of one operand sums along the axes that the result does not have."""
    if len(case.operands) != 1:
        return None
    operand, count = case.operands[0], _num_summed(case, case.operands)
    if not operand.largest > 0 or math.log(count) + math.log(operand.largest) < case.log_limit:
        return None
    return f"{case.name} of {several(count, operand)} {case.overflows} {case.out_of}."


def num_products(case: Case) -> int:
    """Counts the products in one element of a contraction's result, at most.

    Args:
        case: A matrix product, a convolution or one of its gradients, an einsum.

    Returns:
        The number, 0 if the shapes do not tell.
    """
    one, other = _factors(case)
    if case.name in MATMULS:
        transposed = case.attributes("transpose_a") or case.attributes("adj_x")
        return _size(one.shape, -2 if transposed else -1)
    if case.name == "Einsum":
        return _num_summed(case, (one, other))
    is_depthwise = case.name.startswith("Depthwise")
    if case.name in CONVOLUTIONS:
        return math.prod(other.shape[: -2 if is_depthwise else -1])
    if case.name in INPUT_GRADIENTS:
        return math.prod(one.shape[:-2]) * _size(one.shape, -1)
    # A filter's gradient sums over the batch and all places.
    return other.num_elements // max(_num_channels(case, other), 1)


def _factors(case: Case) -> Sequence[Operand]:
    floats = case.floats[:2]
    return floats if len(floats) == 2 else case.operands[:2]


def _num_channels(case: Case, operand: Operand) -> int:
    is_first = _text(case.attributes("data_format")).startswith("NC")
    return _size(operand.shape, 1 if is_first else -1)


def _num_summed(case: Case, operands: Sequence[Operand]) -> int:
    """Multiplies the sizes of an einsum's axes that its result does not have."""
    terms, arrow, result = _text(case.attributes("equation")).partition("->")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms.split(","), operands, strict=False):
        # An ellipsis stands for axes in the middle: count those after it from the end.
        before, _, after = term.strip().partition("...")
        for axis, size in (
            *zip(before, operand.shape, strict=False),
            *zip(reversed(after), reversed(operand.shape), strict=False),
        ):
            sizes[axis] = max(sizes.get(axis, 1), size)
    return math.prod(size for axis, size in sizes.items() if axis not in result) if arrow else 0


def _text(attribute: Any) -> str:
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute or "")


def _size(shape: Sequence[int], axis: int | None) -> int:
    """The size of an axis; of all if it is not known which."""
    if axis is None:
        return math.prod(shape)
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


def _neighbours(case: Case) -> str | None:
    """LRN: the bias plus alpha times a sum of squares, over a window of channels."""
    operand = case.operands[0]
    radius = case.attributes("depth_radius")
    count = min(2 * int(5 if radius is None else radius) + 1, _size(operand.shape, -1))
    if not operand.largest > 0:
        return None
    if math.log(count) + 2 * math.log(operand.largest) < case.log_limit:
        return None
    return (
        f"{case.name}: the sum of the squares of {several(count, operand, 'channel')} "
        f"{case.overflows} {case.out_of}."
    )


SUMS: Final = (
    Family(_NOTHING, 1, _of_nothing),
    Family(REDUCED_SUMS, 1, _reduced_sum),
    Family(REDUCED_PRODUCTS, 1, _reduced_product),
    Family(CONTRACTIONS, 2, _contraction),
    Family(("Einsum",), 1, _einsum_of_one),
    Family(("LRN",), 1, _neighbours),
)
