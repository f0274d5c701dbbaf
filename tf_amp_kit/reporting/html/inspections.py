"""Sections of what was looked at: audits, numerics, gradients, the first NaN."""

from __future__ import annotations

from tf_amp_kit.inspection.nonfinite.report import NonFiniteReport
from tf_amp_kit.inspection.numerics.pairs import GRADIENT_COLUMNS, GradientComparison
from tf_amp_kit.inspection.numerics.report import NUMERICS_COLUMNS, NumericsReport
from tf_amp_kit.inspection.report import AUDIT_COLUMNS, AuditReport
from tf_amp_kit.reporting.html.drawing import drawn
from tf_amp_kit.reporting.html.views import FINE, LOOK, PROBLEM, Cell, Section, Table
from tf_amp_kit.reporting.plots import plot_exponents, plot_gradients, plot_layers

__all__ = ["audit", "gradients", "nonfinite", "numerics"]

# Half precision that turns gradients by more than this is worth a look.
_LEAST_COSINE = 0.9


def audit(report: AuditReport) -> Section:
    """Shows what every layer computes in, and what was found."""
    findings = [
        (
            one.code,
            one.severity,
            one.path or "(model)",
            one.message,
            Cell(str(one.source), one.source.text) if one.source else "",
            one.fix,
        )
        for one in report.findings
    ]
    columns = ("Code", "Severity", "Layer", "What happens", "Line", "Fix")
    tables = [Table("Findings", columns, findings)] if findings else []
    tables.append(Table("Layers", AUDIT_COLUMNS, list(report.cells())))
    status = FINE
    if report.findings_at_least("warning"):
        status = PROBLEM if report.findings_at_least("error") else LOOK
    counts = report.summary() or "no findings"
    verdict = f"{report.model_name!r} was expected to compute in {report.precision}: {counts}."
    return Section(f"Audit of {report.model_name!r}", status, verdict, report.remarks, tables)


def numerics(report: NumericsReport) -> Section:
    """Shows what half precision does to every tensor."""
    worst = report.judged()
    is_lost = any(one.num_nonfinite or one.judgement.num_overflow for one in worst)
    verdict, *rest = report.summary()
    num_nonfinite = sum(one.num_nonfinite > 0 for one in worst)
    if num_nonfinite:
        rest = [verdict, *rest]
        verdict = f"{num_nonfinite} of {len(report.tensors)} tensors hold NaN or Inf."
    return Section(
        f"Numerics of {report.model_name!r} in {report.precision}",
        PROBLEM if is_lost else FINE,
        verdict,
        [*rest, *report.notes],
        [Table(report.title(), NUMERICS_COLUMNS, list(report.cells()))],
        [
            drawn(f"Overflow and underflow by layer, {report.model_name}", plot_layers, report),
            drawn(f"Powers of two of the tensors, {report.model_name}", plot_exponents, report),
        ],
    )


def gradients(comparison: GradientComparison) -> Section:
    """Shows the weight gradients of half precision next to those of float32."""
    whole = comparison.whole
    status = LOOK if not whole.cosine >= _LEAST_COSINE else FINE
    verdict = (
        f"All weight gradients together have cosine {whole.cosine:.6f} and relative error "
        f"{whole.relative_error:.2g} to those of float32."
    )
    if whole.num_nonfinite:
        status, verdict = PROBLEM, f"{whole.num_nonfinite} elements of gradients are not finite."
    title = f"Gradients of {comparison.model_name!r} in {comparison.precision}"
    return Section(
        title,
        status,
        verdict,
        comparison.notes,
        [Table(comparison.title(), GRADIENT_COLUMNS, list(comparison.cells()))],
        [drawn(f"Gradients by weight, {comparison.model_name}", plot_gradients, comparison)],
    )


def nonfinite(report: NonFiniteReport) -> Section:
    """Shows where the first NaN or Inf was born."""
    first, *rest = [" ".join(line.split()) for line in report.lines()]
    status = FINE
    if report.origin is not None:
        status = LOOK if report.is_only_loss_scale else PROBLEM
    return Section("The first NaN or Inf", status, first, rest)
