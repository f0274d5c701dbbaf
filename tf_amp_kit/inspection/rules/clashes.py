"""AMP107: dtypes that do not go together, so that the call raised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tf_amp_kit.inspection.findings import Finding, finding
from tf_amp_kit.tracing.records import Conflict


def clashing_dtypes(conflicts: Iterable[Conflict]) -> Iterator[Finding]:
    """AMP107, and AMP401 where it is a kernel that does not exist."""
    for conflict in conflicts:
        if conflict.is_missing_kernel:
            yield _missing_kernel(conflict)
            continue
        met = " and ".join(conflict.dtypes) or "dtypes that do not go together"
        origins = f" ({'; '.join(conflict.origins)})" if conflict.origins else ""
        at = f" in {conflict.operation}" if conflict.operation else ""
        yield finding(
            "AMP107",
            conflict.path,
            conflict.layer_class,
            f"raises: {met} meet{at}{origins}. {conflict.message[:300]}",
            "Cast one side: `ops.cast(value, tensor.dtype)`, or use `keras.ops`, which promotes. "
            'Or give the layer `dtype="float32"`.',
            source=conflict.source,
        )


def _missing_kernel(conflict: Conflict) -> Finding:
    dtype = next((name for name in conflict.dtypes if name != "float32"), "half precision")
    return finding(
        "AMP401",
        conflict.path,
        conflict.layer_class,
        f"{conflict.operation or 'an operation'} has no {dtype} kernel on this device. "
        f"{conflict.message[:300]}",
        'Give the layer `dtype="float32"`.',
        source=conflict.source,
    )
