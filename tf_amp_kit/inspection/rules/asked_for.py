"""AMP104, AMP108: the model is not in the precision, or level, that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.inspection.inquiry import Inquiry
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.records import LayerFacts

# Weighted layers that a head has, unless there are more outputs than that.
_LARGEST_HEAD: Final = 2

_FIX: Final = (
    "Build it after the precision is set, in the same thread: a policy belongs to one thread, "
    "`clear_session()` resets it, and a `dtype=` on a model does not reach its layers. A file "
    'keeps the policies that it was saved with: `tf_amp_kit.convert_model(model, "bf16")` makes '
    "a twin in half of it."
)


def half_layers_to_pin(inquiries: Sequence[Inquiry], paths: tuple[str, ...]) -> Iterator[Finding]:
    """AMP108: nobody applied the level, or the pins, that were asked for."""
    if not paths:
        return
    count, root = len(paths), inquiries[0].trace.layers[0]
    yield finding(
        "AMP108",
        root.path,
        root.layer_class,
        f"{count} layer{'' if count == 1 else 's'} that should stay in float32 compute"
        f"{'s' if count == 1 else ''} in {inquiries[0].precision}",
        "Once the model is built: `tf_amp_kit.pin_float32(model)`, which tells why for each.",
        affects=paths,
    )


def stale_models(inquiry: Inquiry) -> Iterator[Finding]:
    """AMP104: no layer with float weights computes in the expected dtype."""
    weighted = [
        facts
        for facts in inquiry.trace.layers
        if facts.own_weight_dtypes and not inquiry.is_pinned(facts.path)
    ]
    if not weighted:
        return
    if not _any_as_asked(inquiry, weighted):
        root = inquiry.trace.layers[0]
        others = any(
            call.kind == "layer" and call.compute_dtype == inquiry.precision
            for call in inquiry.trace.calls
        )
        if not (others and _is_head(inquiry, weighted)):
            yield _finding(inquiry, root, weighted)
        return
    reported: list[str] = []
    for facts in inquiry.trace.layers:
        if not facts.is_model or not facts.path or any(is_below(facts.path, p) for p in reported):
            continue
        inside = [other for other in weighted if is_below(other.path, facts.path)]
        if inside and not _any_as_asked(inquiry, inside) and not _is_head(inquiry, inside):
            reported.append(facts.path)
            yield _finding(inquiry, facts, inside)


def _any_as_asked(inquiry: Inquiry, layers: list[LayerFacts]) -> bool:
    return any(facts.compute_dtype == inquiry.precision for facts in layers)


def _is_head(inquiry: Inquiry, inside: list[LayerFacts]) -> bool:
    """Tells a head that is float32 by its own choice: few layers, right at the end."""
    reaching = inquiry.flow.reaching_outputs
    ending = {
        call.path for call in inquiry.trace.calls if any(key in reaching for key in call.outputs)
    }
    is_small = len(inside) <= max(_LARGEST_HEAD, len(inquiry.trace.outputs))
    return is_small and all(facts.path in ending for facts in inside)


def _finding(inquiry: Inquiry, facts: LayerFacts, inside: list[LayerFacts]) -> Finding:
    dtypes = sorted({layer.compute_dtype for layer in inside})
    count = f"{len(inside)} layers" if len(inside) > 1 else "the only layer"
    return finding(
        "AMP104",
        facts.path,
        facts.layer_class,
        f"{inquiry.precision} was expected, but {count} with weights compute"
        f"{'s' if len(inside) == 1 else ''} in {' and '.join(dtypes)}",
        _FIX,
        affects=tuple(layer.path for layer in inside if layer.path != facts.path),
    )
