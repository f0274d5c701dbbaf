"""What is compared, and how; and what is found out on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tf_amp_kit.comparison.training.candidates import Candidate
from tf_amp_kit.comparison.training.record.parts import (
    GradientPoint,
    MemoryUse,
    TrainingRun,
)
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.progress import Progress
from tf_amp_kit.comparison.training.running.run import Schedule
from tf_amp_kit.comparison.training.running.sources import Source
from tf_amp_kit.comparison.training.step_times import Speeds

__all__ = ["Findings", "Setup"]


@dataclass(frozen=True)
class Setup:
    """What is compared, and how.

    Attributes:
        candidates: The precisions, float32 first.
        seeds: The seeds of each.
        float32_seeds: Those of float32: the same, and more to measure its spread.
        builder: Makes the models.
        train: The batches to train on.
        validation: What to evaluate on, or None.
        schedule: At which steps what is done.
        tolerance: What is accepted in any case, as a share of what float32 learned.
        folder: Where runs are kept.
        is_resumable: Whether the folder is the user's.
        is_isolated: Whether each run has its own process.
        progress: Tells how far it is.
    """

    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...]
    float32_seeds: tuple[int, ...]
    builder: Builder
    train: Source
    validation: Source | None
    schedule: Schedule
    tolerance: float
    folder: Folder
    is_resumable: bool
    is_isolated: bool
    progress: Progress

    def seeds_of(self, candidate: Candidate) -> tuple[int, ...]:
        """Returns the seeds that a precision runs with."""
        if not candidate.is_control:
            return self.float32_seeds if candidate.is_reference else self.seeds
        controls = [one for one in self.candidates if one.is_control]
        start = max(self.float32_seeds) + 1 + controls.index(candidate) * len(self.seeds)
        return tuple(range(start, start + len(self.seeds)))

    def schedule_of(self, seed: int) -> Schedule:
        """Returns the schedule of a seed's runs.

        The weights of float32 that only serve its spread are nobody's business, unless a
        later call goes on from them.
        """
        is_shared = self.is_resumable or seed in self.seeds
        return self.schedule if is_shared else replace(self.schedule, kept_at=())

    def order(self) -> Iterator[tuple[Candidate, int]]:
        """Yields the runs, those of the first seeds first: float32 leads, the others follow."""
        for position in range(len(self.float32_seeds)):
            for candidate in self.candidates:
                seeds = self.seeds_of(candidate)
                if position < len(seeds):
                    yield candidate, seeds[position]


@dataclass
class Findings:
    """What was found out so far.

    Attributes:
        model_name: The model's name.
        batch_size: How many samples the first batch holds.
        directions: By the name of a metric, `"up"` or `"down"` for what is better.
        runs: The runs, in the order of making.
        num_pins: How many layers are pinned, by the name of the precision.
        gradients: The gradients compared, likewise.
        memory: The memory, likewise.
        speeds: The speeds, by name and whether XLA compiles.
        odd_layers: Layers whose dimensions waste tensor cores.
        notes: What else there is to know.
    """

    model_name: str = ""
    batch_size: int = 0
    directions: dict[str, str | None] = field(default_factory=dict)
    runs: list[TrainingRun] = field(default_factory=list)
    num_pins: dict[str, int] = field(default_factory=dict)
    gradients: dict[str, tuple[GradientPoint, ...]] = field(default_factory=dict)
    memory: dict[str, MemoryUse] = field(default_factory=dict)
    speeds: Speeds = field(default_factory=dict)
    odd_layers: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def has_failed(self, name: str) -> bool:
        """Tells whether a run of a precision ended before its last step."""
        return any(run.failure for run in self.runs if run.name == name)
