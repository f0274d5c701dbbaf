"""Softmax and the cross entropies: rows of -inf, logits too far apart, wrong labels."""

from __future__ import annotations

from typing import Final

from tf_amp_kit.inspection.nonfinite.causes.case import (
    Case,
    Family,
    negative_infinite,
    positive_infinite,
    values,
)
from tf_amp_kit.inspection.nonfinite.causes.constants import because_of
from tf_amp_kit.inspection.nonfinite.numbers import number

_CROSS_ENTROPIES: Final = (
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
)


def _labels_out_of_range(case: Case) -> str | None:
    logits, labels = case.operands[:2]
    num_classes = logits.shape[-1] if logits.shape else 0
    if not case.is_nan or not (labels.minimum < 0 or labels.maximum >= num_classes):
        return None
    return (
        f"{case.name}: the integer labels, {values(labels)}, are out of range: "
        f"{num_classes} classes have labels from 0 to {num_classes - 1}."
    )


def _infinite_rows(case: Case) -> str | None:
    logits = case.operands[0]
    if not case.is_nan or not logits.num_infinite:
        return None
    num_classes = logits.shape[-1] if logits.shape else 1
    can_be_masked = negative_infinite(logits) and logits.num_infinite >= num_classes
    if can_be_masked and not logits.num_positive_infinite:
        return f"{case.name} of a row that holds nothing but -inf is NaN{because_of(logits)}."
    if can_be_masked:
        return (
            f"{case.name} of a row that holds inf, or nothing but -inf, is NaN{because_of(logits)}."
        )
    if positive_infinite(logits):
        return f"{case.name} of a row that holds inf is NaN{because_of(logits)}."
    return None


def _zero_labels(case: Case) -> str | None:
    """Dense labels multiply every class: 0 times the loss of a logit of -inf."""
    logits, labels = case.operands[:2]
    if not case.is_nan or not negative_infinite(logits) or not labels.num_zeros:
        return None
    return f"{case.name}: a label of 0 times a logit of -inf is NaN{because_of(logits)}."


def _masked_label(case: Case) -> str | None:
    logits = case.operands[0]
    if not case.is_infinite or not negative_infinite(logits):
        return None
    return (
        f"{case.name} of a logit of -inf is infinite where it is the label's{because_of(logits)}."
    )


def _masked_logit(case: Case) -> str | None:
    logits = case.operands[0]
    if not case.is_infinite or not negative_infinite(logits):
        return None
    return f"{case.name} of -inf is -inf{because_of(logits)}."


def _far_apart(case: Case) -> str | None:
    logits = case.operands[0]
    difference = logits.maximum - logits.minimum
    if not difference >= case.limit:
        return None
    return (
        f"{case.name} of logits from {number(logits.minimum)} to {number(logits.maximum)}: "
        f"their difference of up to {number(difference)} {case.overflows} {case.beyond}."
    )


CLASSES: Final = (
    Family(("SparseSoftmaxCrossEntropyWithLogits",), 2, _labels_out_of_range),
    Family(("SoftmaxCrossEntropyWithLogits",), 2, _zero_labels),
    Family(("Softmax", "LogSoftmax", *_CROSS_ENTROPIES), 1, _infinite_rows),
    Family(("LogSoftmax",), 1, _masked_logit),
    Family(_CROSS_ENTROPIES, 2, _masked_label),
    Family(("LogSoftmax", *_CROSS_ENTROPIES), 1, _far_apart),
)
