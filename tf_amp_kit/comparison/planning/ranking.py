"""The order in which units are worth keeping in float32."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.tracing.paths import is_below

__all__ = ["rank_units"]


def rank_units(effects: Effects, excluded: Collection[str] = ()) -> tuple[str, ...]:
    """Orders units so that the first ones are worth most in float32.

    Units that make NaN or Inf come first, then those close to the format's largest
    number, then, one by one, whatever takes most off the error that is predicted for the
    rest. A composite has to be worth all the units in it.

    Args:
        effects: What the units do.
        excluded: Units that cannot be pinned.

    Returns:
        The paths of the other units.
    """
    ranking = _Ranking(effects, excluded)
    for path in _urgent(effects, excluded):
        ranking.add(path)
    while best := ranking.best():
        ranking.add(best)
    return tuple(ranking.order)


class _Ranking:
    def __init__(self, effects: Effects, excluded: Collection[str]) -> None:
        self._effects = effects
        self._half = set(effects.half_with(()))
        self._pinnable = [one.path for one in effects.units if one.path not in excluded]
        self._worth: dict[str, float] = {}
        self.order: list[str] = []

    def add(self, path: str) -> None:
        if path not in self._half:
            return  # what holds it came before
        members = self._members(path)
        around = {other for one in members for other in self._neighbours(one)}
        self.order.append(path)
        self._half -= members
        self._worth = {
            one: worth
            for one, worth in self._worth.items()
            if not any(is_below(other, one) for other in members | around)
        }

    def best(self) -> str | None:
        candidates = [path for path in self._pinnable if path in self._half]
        for path in candidates:
            if path not in self._worth:
                self._worth[path] = self._worth_of(path)
        return max(candidates, key=self._worth.__getitem__, default=None)

    def _worth_of(self, path: str) -> float:
        """Returns what pinning takes off the square of the error, per unit that is pinned."""
        effects, members = self._effects, self._members(path)
        takers = {one for gone in members for one in effects.takers.get(gone, ())}
        others = (takers & self._half) - members
        rest = self._half - members
        before = sum(effects.share(one, self._half) for one in members | others)
        return (before - sum(effects.share(one, rest) for one in others)) / len(members)

    def _members(self, path: str) -> set[str]:
        return {one for one in self._half if is_below(one, path)}

    def _neighbours(self, path: str) -> Iterable[str]:
        """Yields the units whose worth follows from whether this one runs in half."""
        effects = self._effects
        for one in (path, *effects.takers.get(path, ()), *effects.givers.get(path, ())):
            yield from (one, *effects.givers.get(one, ()), *effects.takers.get(one, ()))


def _urgent(effects: Effects, excluded: Collection[str]) -> list[str]:
    """Returns the units that come first, whatever their error is."""
    composites = {unit.parent for unit in effects.units}
    near = [
        unit.path
        for unit in effects.units
        if unit.path not in composites and effects.reason(unit.path) == "range"
    ]
    near.sort(key=lambda path: effects.largest[path], reverse=True)
    return [path for path in (*effects.culprits, *near) if path not in excluded]
