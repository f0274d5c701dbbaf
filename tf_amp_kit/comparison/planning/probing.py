"""From a shadowed float32 pass to the effects of all units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.shadows import NUM_ORTHOGONAL, Shadows
from tf_amp_kit.comparison.planning.trials import Runs
from tf_amp_kit.comparison.planning.units import Unit
from tf_amp_kit.data import Batch
from tf_amp_kit.formats import format_of
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import LOSS, OUTPUTS, Observers

__all__ = ["Probing"]

_Sums = dict[tuple[str, str | None], NDArray[np.float64]]


@dataclass
class Probing:
    """Samples what the error of each unit comes to.

    Args:
        runs: The model.
        units: Its units.
        half: The half format.
        weights: What the error of each output counts, by key.
        of_loss: Whether the error is that of the loss.
    """

    runs: Runs
    units: Sequence[Unit]
    half: str
    weights: Mapping[str, float]
    of_loss: bool

    def effects(
        self, batches: Sequence[Batch], num_probes: int, seed: int, largest: Mapping[str, float]
    ) -> tuple[Effects, dict[str, str]]:
        """Runs the probes.

        Args:
            batches: The batches of the search.
            num_probes: How many random backward passes there are of each batch.
            seed: Chooses their numbers.
            largest: The largest magnitude that each unit takes or returns.

        Returns:
            The effects, and the units whose half-precision code raised with what it said.
        """
        shadows, compute = self._traced()
        count = 1 if self.of_loss else num_probes
        samples: dict[tuple[str, str | None], list[NDArray[np.float64]]] = {}
        nonfinite: set[str] = set(shadows.raising)
        for index, batch in enumerate(batches):
            for probe in range(count):
                group, way = divmod(probe, NUM_ORTHOGONAL)
                shadows.seed.assign(_mixed(seed, index, group))
                shadows.probe.assign(way)
                sums, bad = self._pass(shadows, compute, batch)
                nonfinite |= bad
                for key, values in sums.items():
                    samples.setdefault(key, []).append(values / math.sqrt(count))
        joined = {key: np.concatenate(values) for key, values in samples.items()}
        effects = Effects(
            units=self.units,
            errors={unit: one for (unit, giver), one in joined.items() if giver is None},
            roundings={
                (unit, giver): one for (unit, giver), one in joined.items() if giver is not None
            },
            nonfinite=frozenset(nonfinite),
            largest=largest,
            limit=float(format_of(self.half).largest),
            is_sum=self.of_loss,
        )
        return effects, dict(shadows.raising)

    def _traced(self) -> tuple[Shadows, Any]:
        shadows = Shadows(
            units={unit.path for unit in self.units},
            paths=self.runs.paths,
            half=self.half,
            weights=self.weights,
            of_loss=self.of_loss,
        )
        observers = Observers(
            on_inputs=shadows.on_inputs, on_outputs=shadows.on_outputs, on_end=shadows.on_end
        )
        step = trace_step(
            self.runs.model,
            self.runs.specs,
            loss=self.runs.loss,
            in_float32=True,
            observers=observers,
            until=LOSS if self.of_loss else OUTPUTS,
            training=False,
        )
        outputs = [
            shadows.num_samples,
            *shadows.nonfinite.values(),
            *(one.tensor for one in shadows.projections),
        ]
        return shadows, StepRunner(step).function(outputs)

    def _pass(self, shadows: Shadows, compute: Any, batch: Batch) -> tuple[_Sums, set[str]]:
        self.runs.count_pass()
        count, *values = (one.numpy() for one in compute(batch, 1.0))
        split = len(shadows.nonfinite)
        bad = {path for path, flag in zip(shadows.nonfinite, values[:split], strict=True) if flag}
        sums: _Sums = {}
        for one, value in zip(shadows.projections, values[split:], strict=True):
            key = (one.unit, one.giver)
            sums[key] = sums.get(key, 0.0) + _by_sample(value, int(count))
        return sums, bad


def _by_sample(rows: NDArray[Any], num_samples: int) -> NDArray[np.float64]:
    """Adds up the rows of each sample; what no sample owns is shared out among all."""
    wide = np.asarray(rows, np.float64)
    if len(wide) and len(wide) % num_samples == 0:
        return wide.reshape(num_samples, -1).sum(axis=1)  # type: ignore[no-any-return]
    return np.full(num_samples, wide.sum() / math.sqrt(num_samples))


def _mixed(*numbers: int) -> int:
    """Makes one seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] % 2**31)
