"""AMP107: dtypes that do not go together, so that the call raised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.tracing.records import Conflict

_MAX_MESSAGE: Final = 300


def clashing_dtypes(conflicts: Iterable[Conflict], device_type: str) -> Iterator[Finding]:
    """AMP107, and AMP401 where it is a kernel that does not exist.

    Args:
        conflicts: Calls that raised because of half precision.
        device_type: `"CPU"` or `"GPU"`, where the model runs.
    """
    for conflict in conflicts:
        if conflict.is_missing_kernel:
            yield _missing_kernel(conflict, device_type)
            continue
        met = " and ".join(conflict.dtypes) or "dtypes that do not go together"
        origins = f" ({'; '.join(conflict.origins)})" if conflict.origins else ""
        at = f" in {conflict.operation}" if conflict.operation else ""
        yield finding(
            "AMP107",
            conflict.path,
            conflict.layer_class,
            f"raises: {met} meet{at}{origins}. {_brief(conflict.message)}",
            "Cast one side: `ops.cast(value, tensor.dtype)`, or use `keras.ops`, which promotes. "
            'Or give the layer `dtype="float32"`.',
            source=conflict.source,
        )


def _missing_kernel(conflict: Conflict, device_type: str) -> Finding:
    dtype = next((name for name in conflict.dtypes if name != "float32"), "half precision")
    return finding(
        "AMP401",
        conflict.path,
        conflict.layer_class,
        f"{conflict.operation or 'an operation'} has no {dtype} kernel on {device_type}. "
        f"{_brief(conflict.message)}",
        'Give the layer `dtype="float32"`.',
        source=conflict.source,
    )


def _brief(message: str) -> str:
    """Cuts the description of the operation off that TensorFlow adds."""
    short = message.split("; NodeDef")[0].split("[Op:")[0].strip()
    return short if len(short) <= _MAX_MESSAGE else f"{short[:_MAX_MESSAGE]}..."
