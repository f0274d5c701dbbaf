"""AMP107: dtypes that do not go together, so that the call raised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.tracing.records import Conflict

_MAX_MESSAGE: Final = 300

_FIX: Final = "Cast one side to the other's dtype: `ops.cast(value, tensor.dtype)`."
_FIX_LAYER: Final = (
    'If float32 is meant, give the layer `dtype="float32"`. If the code is not yours, build and '
    'train within `tf_amp_kit.amp_scope(..., on_conflict="float32")`.'
)


def clashing_dtypes(conflicts: Iterable[Conflict]) -> Iterator[Finding]:
    """AMP107: what raised, which dtypes met, and where each came from.

    Args:
        conflicts: Calls that raised because of half precision; those that only
            lack a kernel are another rule's.
    """
    for conflict in conflicts:
        if conflict.is_missing_kernel:
            continue
        met = " and ".join(conflict.dtypes) or "dtypes that do not go together"
        origins = f" ({'; '.join(conflict.origins)})" if conflict.origins else ""
        at = f" in {conflict.operation}" if conflict.operation else ""
        yield finding(
            "AMP107",
            conflict.path,
            conflict.layer_class,
            f"raises: {met} meet{at}{origins}. {_brief(conflict.message)}",
            _FIX if conflict.is_model else f"{_FIX} {_FIX_LAYER}",
            source=conflict.source,
        )


def _brief(message: str) -> str:
    """Cuts the description of the operation off that TensorFlow adds."""
    short = message.split("; NodeDef")[0].split("[Op:")[0].strip()
    return short if len(short) <= _MAX_MESSAGE else f"{short[:_MAX_MESSAGE]}..."
