"""What cannot be pinned by itself, or at all, because of the code around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tf_amp_kit.comparison.planning.units import Unit, innermost, topmost
from tf_amp_kit.precision.pinning.effects import Harm

__all__ = ["PinLimits"]


@dataclass
class PinLimits:
    """Replaces pins that code around them cannot take, as far as that is known.

    Args:
        units: All units.
    """

    units: Sequence[Unit]
    #: Units that cannot be pinned, with the reason.
    refused: dict[str, str] = field(default_factory=dict)
    # What has to be pinned instead of a unit.
    _lifts: dict[str, str] = field(default_factory=dict)

    def lifted(self, pins: Sequence[str]) -> tuple[str, ...]:
        """Returns pins with what has to be pinned instead, without those that cannot be."""
        found = []
        for path in pins:
            while path in self._lifts:
                path = self._lifts[path]
            if path not in self.refused:
                found.append(path)
        return topmost(found)

    def learn(self, harms: Sequence[Harm]) -> None:
        """Remembers what pins did to the code around them."""
        for harm in harms:
            around = innermost(harm.around, self.units)
            # Two that lift each other would go on for ever.
            if around is None or harm.path in self.lifted([around.path]):
                self.refused[harm.path] = harm.reason
            else:
                self._lifts[harm.path] = around.path
