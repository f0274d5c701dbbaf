"""Effects of units made by hand: their records take any numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.units import Unit

#: The largest float16.
LIMIT = 65504.0

Numbers = Sequence[float]


def effects_of(
    errors: Mapping[str, Numbers],
    roundings: Mapping[tuple[str, str], Numbers] | None = None,
    *,
    parents: Mapping[str, str] | None = None,
    without_errors: Collection[str] = (),
    nonfinite: Collection[str] = (),
    raising: Collection[str] = (),
    largest: Mapping[str, float] | None = None,
    is_sum: bool = False,
) -> Effects:
    """Effects of the units that have errors, in that order, and of some that have none."""
    around = parents or {}
    paths = [*errors, *without_errors]
    lengths = [len(one) for one in errors.values()]
    return Effects(
        units=tuple(Unit(path, "Dense", around.get(path)) for path in paths),
        errors={path: np.array(one, np.float64) for path, one in errors.items()},
        roundings={key: np.array(one, np.float64) for key, one in (roundings or {}).items()},
        nonfinite=frozenset(nonfinite),
        largest=largest or {},
        limit=LIMIT,
        batch_sizes=lengths[:1] if is_sum else (),
        raising=frozenset(raising),
    )
