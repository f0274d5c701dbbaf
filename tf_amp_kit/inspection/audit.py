"""The dtype audit: what every layer really computes in, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from tf_amp_kit import hardware
from tf_amp_kit.errors import FindingsError, LoadError
from tf_amp_kit.formats import HALF_PRECISIONS, is_half, parse_precision
from tf_amp_kit.inspection.expected import expected_precision
from tf_amp_kit.inspection.findings import CODES, Finding, gravest_first
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.inspection.report import AuditReport, LayerRow
from tf_amp_kit.inspection.rows import layer_rows
from tf_amp_kit.inspection.rules import Circumstances, run_rules
from tf_amp_kit.precision.pinning.pin import kept_in_float32, missing_pins
from tf_amp_kit.precision.policy import current_amp
from tf_amp_kit.progress import working
from tf_amp_kit.tracing.building import build_observed
from tf_amp_kit.tracing.conflicts import MissingKernel
from tf_amp_kit.tracing.inputs import sample_by_input
from tf_amp_kit.tracing.kernels import default_device_type
from tf_amp_kit.tracing.model_graph import conflict_record, trace_modes
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.records import Conflict

__all__ = ["AuditReport", "Finding", "FindingsError", "LayerRow", "audit_layer_dtypes"]


def audit_layer_dtypes(
    model: keras.Model | Callable[[], keras.Model],
    *,
    precision: str | None = None,
    inputs: Any = None,
    sample: Any = None,
    training: bool | None = None,
    ignore: Sequence[str] = (),
    verbose: int = 1,
) -> AuditReport:
    """Audits what every layer of a model really computes in.

    Use it after a model is built, and before it trains. Keras records the dtype
    that a layer should return; this traces the model and sees what it does
    return, what it runs inside, and the line of code behind each surprise. The
    trace computes nothing and leaves the model, its weights and all random
    states as they were; only an unbuilt model gets built, as by its first call.
    `tf_amp_kit.inspection.findings.CODES` says what each code is about.

    Args:
        model: A Keras model, or a function without arguments that returns one.
            The function is called here, so that a dtype conflict while building
            becomes a finding; any other error of its own is its own.
        precision: What the model is expected to compute in, `"bf16"` for
            example. None means what `enable_amp` recorded, else Keras's global
            policy, else what most of the model computes in.
        inputs: Example inputs, only for a model that does not know its own:
            arrays, tensors, `tf.TensorSpec`s, a dataset, or shapes.
        sample: Raw inputs, without targets, as `fit` would get them: arrays, a
            list or dictionary of arrays, or a dataset, whose first batch is
            taken. Adds the check whether the first cast damages them.
        training: Which mode to trace. None traces both.
        ignore: Codes to leave out, `("AMP203",)` for example.
        verbose: 1 prints the report as `model.summary()` does, 0 is silent.

    Returns:
        An `AuditReport` with `findings` and `rows`.

    Raises:
        ModelError: If it is not a Keras 3 model, or unbuilt and without `inputs`.
        InputsError: If the inputs are unknown, or do not fit the model.
        PrecisionError: If `precision` is unknown.
        LoadError: If a builder returns something else than a model.
        ValueError: If `ignore` holds an unknown code.

    Example:

    >>> import keras
    >>> import numpy as np
    >>> class Scale(keras.layers.Layer):
    ...     def call(self, inputs):
    ...         return keras.ops.multiply(inputs, np.float32(2))
    >>> policy = keras.config.dtype_policy()
    >>> keras.config.set_dtype_policy("mixed_bfloat16")
    >>> model = keras.Sequential(
    ...     [keras.Input((4,)), Scale(), keras.layers.Dense(1, dtype="float32")]
    ... )
    >>> report = audit_layer_dtypes(model, verbose=0)
    >>> [(one.code, one.path) for one in report.findings if one.path]
    [('AMP101', 'scale')]
    >>> keras.config.set_dtype_policy(policy)
    """
    ignore = ignore or ()
    _check_codes(ignore)
    asked = None if precision is None else parse_precision(precision, argument="precision")
    with working("Auditing", is_shown=bool(verbose)):
        report = _audit(model, asked, inputs, sample, training, ignore)
    if verbose:
        print(report)
    return report


def _audit(
    model: Any,
    asked: str | None,
    inputs: Any,
    sample: Any,
    training: bool | None,
    ignore: Sequence[str],
) -> AuditReport:
    met_while_building: tuple[Conflict, ...] = ()
    if not isinstance(model, keras.Model) and _is_builder(model):
        built = build_observed(model)
        met_while_building = built.conflicts
        if built.is_stopped:
            return _stopped(built.name, asked, built.conflicts, ignore)
        if not isinstance(built.model, keras.Model):
            raise LoadError(
                "The builder does not return a model. Expected a keras.Model. "
                f"Received: {built.name}() returned {type(built.model).__name__}."
            )
        model = built.model
    modes = (False, True) if training is None else (training,)
    try:
        traces = trace_modes(model, inputs=inputs, fallback=sample, modes=modes)
    except MissingKernel as stop:
        conflict = conflict_record(stop.layer, stop.clash, LayerPaths(model))
        return _stopped(model.name, asked, (conflict,), ignore)
    expected = expected_precision(asked, traces[0].layers)
    pinned = kept_in_float32(LayerPaths(model))
    inquiries = [Inquiry(trace, expected, pinned) for trace in traces]
    around = Circumstances(
        conflicts=met_while_building,
        device_type=default_device_type(),
        missing_pins=_missing_pins(model, expected, traces[-1]),
        slow_reasons=_slow_reasons(),
        sample={} if sample is None else sample_by_input(model, sample, traces[0].input_shapes),
    )
    findings = _sorted(run_rules(inquiries, around), ignore)
    return AuditReport(
        model.name,
        expected,
        findings,
        layer_rows(inquiries, findings),
        tuple(_remarks(traces, expected)),
    )


def _stopped(
    name: str, asked: str | None, conflicts: tuple[Conflict, ...], ignore: Sequence[str]
) -> AuditReport:
    """Reports a model that cannot even be built."""
    around = Circumstances(conflicts=conflicts, device_type=default_device_type())
    findings = _sorted(run_rules((), around), ignore)
    remark = "The model could not be built, so that nothing else was looked at."
    return AuditReport(name, expected_precision(asked, ()), findings, (), (remark,))


def _is_builder(model: Any) -> bool:
    return callable(model) and not isinstance(model, keras.layers.Layer | type)


def _missing_pins(model: keras.Model, expected: str, trace: ModelTrace) -> tuple[str, ...]:
    """Returns what was asked for in float32, unless the model has its pins."""
    asked = current_amp()
    if asked is None or asked.precision != expected:
        return ()
    return missing_pins(model, trace, asked)


def _slow_reasons() -> dict[str, str]:
    reasons = {dtype: hardware.slow_reason(dtype) for dtype in HALF_PRECISIONS}
    return {dtype: reason for dtype, reason in reasons.items() if reason}


def _remarks(traces: Sequence[ModelTrace], expected: str) -> Iterable[str]:
    reasons = dict.fromkeys(trace.why_eager for trace in traces if trace.is_eager)
    for reason in reasons:
        yield (
            f"The model cannot be traced ({reason}): it ran eagerly on two samples, and branches "
            "that these did not take are unseen."
        )
    if not all(trace.dtypes_are_known for trace in traces):
        yield (
            "The model does not tell the dtypes of its inputs, only their shapes: they were taken "
            "for float32. Pass `inputs=` to be sure."
        )
    dtypes = {facts.compute_dtype for trace in traces for facts in trace.layers}
    if not is_half(expected) and not any(is_half(dtype) for dtype in dtypes):
        yield (
            "Nothing is half: every layer computes in float32. If it should be, say what was asked "
            "for: `precision=` here, `--amp` on the command line."
        )
    if any(trace.conflicts for trace in traces):
        yield "What raised was run in float32 to see the rest: audit again once that is repaired."
    weighted = [facts.compute_dtype for facts in traces[0].layers if facts.own_weight_dtypes]
    num_wide = sum(dtype == "float32" for dtype in weighted)
    if is_half(expected) and 0.5 < num_wide / max(len(weighted), 1) < 1:
        yield f"{num_wide} of {len(weighted)} layers with weights compute in float32."


def _check_codes(codes: Sequence[str]) -> None:
    if isinstance(codes, str) or any(code not in CODES for code in codes):
        raise ValueError(
            f"Unknown finding code. Expected a sequence of some of {sorted(CODES)}. "
            f"Received: ignore={codes!r}."
        )


def _sorted(findings: Iterable[Finding], ignore: Sequence[str]) -> tuple[Finding, ...]:
    return gravest_first(one for one in findings if one.code not in ignore)
