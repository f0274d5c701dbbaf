"""Telling on standard error how far a comparison is."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import Final

from tf_amp_kit.comparison.training.record.parts import TrainingRun

__all__ = ["Progress"]

_SECONDS: Final = 0.5
# Back to the start, and away with what was there: half a number would look like another.
_ANEW: Final = "\r\x1b[K"
_last: list[float] = [0.0]


@dataclass(frozen=True)
class Progress:
    """Says what is being done.

    Attributes:
        num_steps: How many steps a run has.
        is_shown: Whether anything is said.
    """

    num_steps: int
    is_shown: bool

    def muted(self) -> Progress:
        """Returns one that says nothing."""
        return replace(self, is_shown=False)

    def step(self, run: TrainingRun) -> None:
        """Says at which step a run is, twice a second, where a line can be written over."""
        now = time.monotonic()
        if not (self.is_shown and sys.stderr.isatty()) or now - _last[0] < _SECONDS:
            return
        _last[0] = now
        print(f"{_ANEW}{self._run(run)}", end="", file=sys.stderr, flush=True)

    def end(self, run: TrainingRun) -> None:
        """Says what a run came to."""
        how = f", ended early: {run.failure}" if run.failure else ""
        self.say(f"{self._run(run)}, {run.seconds:.1f} s{how}")

    def say(self, text: str) -> None:
        """Writes a line."""
        if self.is_shown:
            start = _ANEW if sys.stderr.isatty() else ""
            print(f"{start}{text}", file=sys.stderr, flush=True)

    def _run(self, run: TrainingRun) -> str:
        steps = f"{run.name}, seed {run.seed}: {len(run.losses)} of {self.num_steps} steps"
        return f"{steps}, loss {run.losses[0]:.4g} -> {run.losses[-1]:.4g}" if run.losses else steps
