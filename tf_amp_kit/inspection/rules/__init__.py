"""The rules of the audit: pure functions from a trace to findings.

A rule is listed once, in `RULES`, with its codes in `findings.CODES`. Rules that
need more than the trace get it through `Circumstances`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from numpy.typing import NDArray

from tf_amp_kit.inspection.findings import Finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.rules.asked_for import stale_models
from tf_amp_kit.inspection.rules.between import idle_casts, wide_operations
from tf_amp_kit.inspection.rules.clashes import clashing_dtypes
from tf_amp_kit.inspection.rules.heads import half_activations, half_outputs
from tf_amp_kit.inspection.rules.machine import missing_kernels, odd_dimensions, slow_precision
from tf_amp_kit.inspection.rules.masks import overflowing_masks
from tf_amp_kit.inspection.rules.sensitive import sensitive_operations
from tf_amp_kit.inspection.rules.training import half_losses, missing_masters, unscaled_optimizers
from tf_amp_kit.inspection.rules.values import changed_constants, damaged_inputs, rounded_ids
from tf_amp_kit.inspection.rules.widening import silent_reversions, wide_products

__all__ = ["Circumstances", "clashing_dtypes", "run_rules"]


@dataclass(frozen=True)
class Circumstances:
    """What an audit knows besides the trace.

    Attributes:
        device_type: `"CPU"` or `"GPU"`, where the model runs by default.
        slow_reasons: Why a half dtype is slow here, by dtype; absent if it is not.
        sample: Raw float inputs by the key of the model input.
    """

    device_type: str = "CPU"
    slow_reasons: Mapping[str, str] = field(default_factory=dict)
    sample: Mapping[str, NDArray[Any]] = field(default_factory=dict)


Rule = Callable[[Inquiry, Circumstances], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    lambda inquiry, around: clashing_dtypes(inquiry.trace.conflicts, around.device_type),
    lambda inquiry, _: silent_reversions(inquiry),
    lambda inquiry, _: wide_products(inquiry),
    lambda inquiry, _: stale_models(inquiry),
    lambda inquiry, _: wide_operations(inquiry),
    lambda inquiry, _: idle_casts(inquiry),
    lambda inquiry, _: half_outputs(inquiry),
    lambda inquiry, _: half_activations(inquiry),
    lambda inquiry, _: sensitive_operations(inquiry),
    lambda inquiry, _: changed_constants(inquiry),
    lambda inquiry, _: overflowing_masks(inquiry),
    lambda inquiry, around: damaged_inputs(inquiry, around.sample),
    lambda inquiry, _: rounded_ids(inquiry),
    lambda inquiry, _: unscaled_optimizers(inquiry),
    lambda inquiry, _: missing_masters(inquiry),
    lambda inquiry, _: half_losses(inquiry),
    lambda inquiry, around: missing_kernels(inquiry, around.device_type),
    lambda inquiry, around: slow_precision(inquiry, around.slow_reasons),
    lambda inquiry, around: odd_dimensions(inquiry, around.device_type),
)


def run_rules(inquiries: Iterable[Inquiry], around: Circumstances) -> tuple[Finding, ...]:
    """Runs every rule on every trace, and joins what is found twice.

    Args:
        inquiries: One per `training` mode.
        around: What is known besides.

    Returns:
        The findings in the order of the rules; equal ones of two modes, or of
        two calls of one layer, once.
    """
    findings: dict[tuple[Any, ...], Finding] = {}
    traces = list(inquiries)
    for rule in RULES:
        for inquiry in traces:
            for new in rule(inquiry, around):
                _join(findings, new)
    return tuple(findings.values())


def _join(findings: dict[tuple[Any, ...], Finding], new: Finding) -> None:
    # Shares of the multiply-adds may differ between the modes.
    key = (new.code, new.path, new.source, re.sub(r"\d+%", "", new.message))
    old = findings.get(key)
    if old is None:
        findings[key] = new
    else:
        affects = tuple(dict.fromkeys((*old.affects, *new.affects)))
        findings[key] = replace(old, affects=affects)
