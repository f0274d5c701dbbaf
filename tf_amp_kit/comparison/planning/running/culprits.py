"""Which units NaN or Inf began in, where float32 has none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tf_amp_kit.comparison.planning.running.results import Results
from tf_amp_kit.comparison.planning.running.watch import Extremes
from tf_amp_kit.comparison.planning.units import Unit, innermost
from tf_amp_kit.tracing.heads import ancestors
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import is_below
from tf_amp_kit.tracing.records import Operation

__all__ = ["find_culprits"]


def find_culprits(
    wide: Sequence[Results], half: Sequence[Results], trace: ModelTrace, units: Sequence[Unit]
) -> tuple[str, ...]:
    """Finds the units to keep in float32 because of NaN or Inf.

    Args:
        wide: The results of some batches in float32.
        half: Those with half precision.
        trace: The trace that these ran.
        units: All units.

    Returns:
        Units that raised, and the innermost units that took finite numbers and returned
        others; if it began between units, those in half precision that handed something
        to there, or without any the one that took it, and casts it.
    """
    paths = {unit.path for unit in units}
    raising = (innermost(one.path, units) for one in trace.conflicts)
    found = {unit.path: None for unit in raising if unit is not None}
    for one, other in zip(wide, half, strict=True):
        fine = {seen.path for seen in one.extremes if seen.returned_finite} & paths
        bad = (seen for seen in other.extremes if seen.took_finite and not seen.returned_finite)
        found |= dict.fromkeys(seen.path for seen in bad if seen.path in fine)
    if not found:
        takers = (_first_taker(*pair, paths) for pair in zip(wide, half, strict=True))
        taker = next(filter(None, takers), None)
        if taker is not None:
            in_half = {call.path for call in trace.calls if call.is_half}
            givers = [path for path in _givers(taker, trace, units) if path in in_half]
            found |= dict.fromkeys(givers or [taker])
    return tuple(path for path in found if not _holds_another(path, found))


def _first_taker(wide: Results, half: Results, paths: Collection[str]) -> str | None:
    """Returns the first unit that took what is not finite, though it is in float32."""
    fine = {seen.path for seen in wide.extremes if seen.took_finite and seen.path in paths}
    return next((seen.path for seen in half.extremes if _is_bad(seen) and seen.path in fine), None)


def _is_bad(seen: Extremes) -> bool:
    return not seen.took_finite


def _givers(taker: str, trace: ModelTrace, units: Sequence[Unit]) -> Iterable[str]:
    """Returns the units whose results reach a unit through no other one."""
    found: dict[str, None] = {}
    taken = [key for call in trace.calls if call.path == taker for key in call.inputs]

    def is_between(producer: Operation) -> bool:
        host = trace.host(producer)
        unit = innermost(host.path, units) if host is not None and host.path else None
        if unit is None or is_below(taker, unit.path):
            return True
        found[unit.path] = None
        return False

    ancestors(trace, taken, through=is_between)
    return found


def _holds_another(path: str, others: Iterable[str]) -> bool:
    return any(one != path and is_below(one, path) for one in others)
