"""The same statistics in plain float64, one line each, from the formats' definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Mantissa bits, smallest normal exponent and largest finite value, of IEEE 754's
# binary16 and of bfloat16, which is the upper half of binary32.
FORMATS = {
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, (2.0 - 2.0**-7) * 2.0**127),
}

# Values at which a half format changes its mind, and their neighbours in float32.
EDGES = np.array(
    [
        edge
        for value in (
            65504.0,
            65519.996,
            65520.0,
            65536.0,
            2.0**-24,
            2.0**-25,
            2.0**-14,
            2.0**-14 - 2.0**-24,
            2.0**-14 - 2.0**-25,
            2.0**-126,
            2.0**-126 - 2.0**-133,
            2.0**-126 - 2.0**-134,
            2.0**-133,
            2.0**-134,
            2.0**-149,
            2.0**128 - 2.0**119,
            3.3895313892515355e38,
            1.0,
            1.0 + 2.0**-11,
            1.0 + 2.0**-8,
        )
        for edge in (
            np.float32(value),
            np.nextafter(np.float32(value), np.float32(0)),
            np.nextafter(np.float32(value), np.float32(3e38)),
        )
    ]
    + [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, np.finfo(np.float32).max],
    np.float32,
)
EDGES = np.concatenate([EDGES, -EDGES])


def random_patterns(size: int, seed: int = 0) -> NDArray[np.float32]:
    """Any float32 is as likely as any other one; about 1 of 100 is not finite."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2**32, size, np.uint32).view(np.float32)


def finite(values: NDArray[np.float32]) -> NDArray[np.float64]:
    return values[np.isfinite(values)].astype(np.float64)


def rounded(wide: NDArray[np.float64], precision: str) -> NDArray[np.float64]:
    """Rounds in one step: `rint` breaks ties to even, and a division by a step is exact."""
    mantissa_bits, smallest, largest = FORMATS[precision]
    exponents = np.maximum(np.frexp(wide)[1] - 1, smallest)
    steps = np.ldexp(1.0, exponents - mantissa_bits)
    result = np.rint(wide / steps) * steps
    return np.where(np.abs(result) > largest, np.copysign(np.inf, wide), result)


def judged(values: NDArray[np.float32], precision: str, shift: int) -> tuple[int, int, int]:
    """Counts what underflows, becomes subnormal and overflows."""
    wide = np.ldexp(finite(values), shift)
    result = np.abs(rounded(wide, precision))[wide != 0]
    smallest_normal = 2.0 ** FORMATS[precision][1]
    return (
        int(np.sum(result == 0)),
        int(np.sum((result > 0) & (result < smallest_normal))),
        int(np.sum(np.isinf(result))),
    )


def rounding_error(values: NDArray[np.float32], precision: str) -> float:
    wide = finite(values)
    result = rounded(wide, precision)
    kept = wide[np.isfinite(result)]
    error = result[np.isfinite(result)] - kept
    return float(np.sqrt(np.sum(error**2) / np.sum(kept**2))) if kept.any() else 0.0


def exponent_counts(values: NDArray[np.float32]) -> dict[int, int]:
    wide = finite(values)
    exponents, counts = np.unique(np.frexp(wide[wide != 0])[1] - 1, return_counts=True)
    return dict(zip(exponents.tolist(), counts.tolist(), strict=True))


def exact_facts(values: NDArray[np.float32]) -> dict[str, Any]:
    """All that has to be identical however the elements are split."""
    wide = finite(values)
    magnitudes = np.abs(wide[wide != 0])
    return {
        "num_elements": values.size,
        "num_zeros": int(np.sum(values == 0)),
        "num_nan": int(np.sum(np.isnan(values))),
        "num_infinite": int(np.sum(np.isinf(values))),
        "minimum": float(wide.min()) if wide.size else None,
        "maximum": float(wide.max()) if wide.size else None,
        "smallest_nonzero": float(magnitudes.min()) if magnitudes.size else None,
        "largest": float(magnitudes.max()) if magnitudes.size else None,
        "exponent_counts": {str(e): n for e, n in exponent_counts(values).items()},
    }
