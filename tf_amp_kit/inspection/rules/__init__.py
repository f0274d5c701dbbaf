"""The rules of the audit: pure functions from a trace to findings.

A rule is listed once, in `RULES`, with its codes in `findings.CODES`. Rules that
need more than the trace get it through `Circumstances`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from numpy.typing import NDArray

from tf_amp_kit.inspection.findings import Finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.rules.asked_for import half_layers_to_pin, stale_models
from tf_amp_kit.inspection.rules.between import idle_casts, wide_operations
from tf_amp_kit.inspection.rules.clashes import clashing_dtypes
from tf_amp_kit.inspection.rules.heads import half_activations, half_outputs
from tf_amp_kit.inspection.rules.machine import missing_kernels, odd_dimensions, slow_precision
from tf_amp_kit.inspection.rules.masks import overflowing_masks
from tf_amp_kit.inspection.rules.sensitive import sensitive_operations
from tf_amp_kit.inspection.rules.training import half_losses, missing_masters, unscaled_optimizers
from tf_amp_kit.inspection.rules.values import changed_constants, damaged_inputs, rounded_ids
from tf_amp_kit.inspection.rules.widening import silent_reversions, wide_products
from tf_amp_kit.tracing.records import Conflict

__all__ = ["Circumstances", "run_rules"]

_TOLD_BY_MESSAGE: Final = ("AMP204", "AMP205")


@dataclass(frozen=True)
class Circumstances:
    """What an audit knows besides the trace.

    Attributes:
        conflicts: What raised while the model was built.
        device_type: `"CPU"` or `"GPU"`, where the model runs by default.
        missing_pins: Paths of layers that were asked for in float32, and are half.
        slow_reasons: Why a half dtype is slow here, by dtype; absent if it is not.
        sample: Raw numeric inputs by the key of the model input.
    """

    conflicts: tuple[Conflict, ...] = ()
    device_type: str = "CPU"
    missing_pins: tuple[str, ...] = ()
    slow_reasons: Mapping[str, str] = field(default_factory=dict)
    sample: Mapping[str, NDArray[Any]] = field(default_factory=dict)


Rule = Callable[[Sequence[Inquiry], Circumstances], Iterable[Finding]]


def _each(rule: Callable[[Inquiry], Iterable[Finding]]) -> Rule:
    """Runs a rule that looks at one trace on every trace."""
    return lambda inquiries, _: (found for one in inquiries for found in rule(one))


RULES: Final[tuple[Rule, ...]] = (
    lambda inquiries, around: clashing_dtypes(_conflicts(inquiries, around)),
    lambda inquiries, around: missing_kernels(
        inquiries, _conflicts(inquiries, around), around.device_type
    ),
    _each(silent_reversions),
    _each(wide_products),
    _each(stale_models),
    lambda inquiries, around: half_layers_to_pin(inquiries, around.missing_pins),
    _each(wide_operations),
    lambda inquiries, _: idle_casts(inquiries),
    _each(half_outputs),
    _each(half_activations),
    _each(sensitive_operations),
    _each(changed_constants),
    _each(overflowing_masks),
    lambda inquiries, around: damaged_inputs(inquiries, around.sample),
    _each(rounded_ids),
    _each(unscaled_optimizers),
    _each(missing_masters),
    _each(half_losses),
    lambda inquiries, around: slow_precision(inquiries, around.slow_reasons),
    lambda inquiries, around: odd_dimensions(inquiries, around.device_type),
)


def run_rules(inquiries: Sequence[Inquiry], around: Circumstances) -> tuple[Finding, ...]:
    """Runs every rule, and joins what is found in both modes or in two calls.

    Args:
        inquiries: One per `training` mode; none for a model that was not built.
        around: What is known besides.

    Returns:
        The findings in the order of the rules.
    """
    findings: dict[tuple[Any, ...], Finding] = {}
    for rule in RULES:
        for new in rule(inquiries, around):
            key = _identity(new)
            old = findings.get(key, new)
            affects = tuple(dict.fromkeys((*old.affects, *new.affects)))
            findings[key] = replace(old, affects=affects)
    return tuple(findings.values())


def _identity(one: Finding) -> tuple[Any, ...]:
    # One line may hold several constants; elsewhere the message may differ
    # between the modes, in a share of the multiply-adds say.
    says = one.message if one.code in _TOLD_BY_MESSAGE or one.source is None else ""
    return one.code, one.path, one.source, says


def _conflicts(inquiries: Sequence[Inquiry], around: Circumstances) -> tuple[Conflict, ...]:
    """Joins the conflicts of the build, without those that the traces met again."""
    traced = [conflict for one in inquiries for conflict in one.trace.conflicts]
    seen = {conflict.source for conflict in traced}
    return (*(one for one in around.conflicts if one.source not in seen), *traced)
