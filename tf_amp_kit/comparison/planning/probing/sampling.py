"""From a shadowed float32 pass to the effects of all units."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tf_amp_kit.comparison.planning.effects import Effects, Samples
from tf_amp_kit.comparison.planning.probing.gradient_shadows import GradientShadows
from tf_amp_kit.comparison.planning.probing.shadows import NUM_ORTHOGONAL, Shadows
from tf_amp_kit.comparison.planning.running.runs import Runs
from tf_amp_kit.comparison.planning.units import Unit
from tf_amp_kit.data import Batch
from tf_amp_kit.formats import format_of
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import LOSS, OUTPUTS, Observers

__all__ = ["Probing"]

_UNTIL: Final = {"output": OUTPUTS, "loss": LOSS, "gradient": LOSS}

# The samples of a batch add up in its gradients, and cannot be told apart: it takes more
# passes for as many numbers. The loss is one number, which needs no signs.
_NUM_TIMES: Final = {"output": 1, "gradient": 4}

_Key = tuple[str, str | None]


@dataclass
class Probing:
    """Samples what the error of each unit comes to.

    Args:
        runs: The model.
        units: Its units.
        half: The half format.
        metric: What the errors are of.
        weights: What the error of each output counts, by key: one over its norm.
        raising: Units that raise in half precision.
        inverse_norm: One over the norm of the gradients, or the size of the loss.
        loss_scale: The loss scale that gradients are taken at.
    """

    runs: Runs
    units: Sequence[Unit]
    half: str
    metric: str
    weights: Mapping[str, float]
    raising: Collection[str] = ()
    inverse_norm: float = 1.0
    loss_scale: float = 1.0

    def effects(
        self, batches: Sequence[Batch], num_probes: int, seed: int, largest: Mapping[str, float]
    ) -> Effects:
        """Runs the probes.

        Args:
            batches: The batches of the search.
            num_probes: How many random backward passes there are of each batch.
            seed: Chooses their signs.
            largest: The largest magnitude that each unit takes or returns.

        Returns:
            The effects.
        """
        shadows, compute = self._traced()
        count = 1 if self.metric == "loss" else num_probes * _NUM_TIMES[self.metric]
        passes: list[_Pass] = []
        nonfinite: set[str] = set(self.raising)
        for index, batch in enumerate(batches):
            for probe in range(count):
                group, way = divmod(probe, NUM_ORTHOGONAL)
                shadows.seed.assign(_mixed(seed, index, group))
                shadows.probe.assign(way)
                values = self._run(compute, batch)
                nonfinite |= _units_that_are_bad(shadows, values.bad)
                passes.append(_projected(shadows, values, self.metric == "gradient") / count)
        samples = _joined(passes)
        return Effects(
            units=self.units,
            errors={unit: one for (unit, giver), one in samples.items() if giver is None},
            roundings={
                (unit, giver): one for (unit, giver), one in samples.items() if giver is not None
            },
            nonfinite=frozenset(nonfinite),
            largest=largest,
            limit=format_of(self.half).largest,
            batch_sizes=[one.length for one in passes] if self.metric == "loss" else (),
            raising=frozenset(self.raising),
            unsampled=frozenset(shadows.raising) - set(self.raising),
        )

    def _traced(self) -> tuple[Shadows, Any]:
        shadows = self._shadows()
        step = trace_step(
            self.runs.model,
            self.runs.specs,
            loss=self.runs.loss,
            in_float32=True,
            observers=Observers(
                on_inputs=shadows.on_inputs, on_outputs=shadows.on_outputs, on_end=shadows.on_end
            ),
            until=_UNTIL[self.metric],
            training=False,
        )
        parts = [
            [shadows.num_samples],
            [*shadows.nonfinite.values()],
            [one.tensor for one in shadows.projections],
        ]
        compute = StepRunner(step).function([one for part in parts for one in part])
        return shadows, lambda batch: _split(compute(batch, 1.0), list(map(len, parts)))

    def _shadows(self) -> Shadows:
        given = {unit.path for unit in self.units}, self.runs.paths, self.half, self.weights
        if self.metric == "gradient":
            return GradientShadows(*given, inverse_norm=self.inverse_norm, scale=self.loss_scale)
        return Shadows(*given, of_loss=self.metric == "loss", inverse_norm=self.inverse_norm)

    def _run(self, compute: Any, batch: Batch) -> _Values:
        self.runs.count_pass()
        (count,), bad, projected = compute(batch)
        return _Values(int(count), bad, projected)


class _Values(NamedTuple):
    """What one pass computed."""

    num_samples: int
    bad: list[Any]
    projected: list[Any]


class _Pass(NamedTuple):
    """The samples of one pass: so many, by the unit and who gave what it rounds."""

    length: int
    samples: dict[_Key, Samples]

    def __truediv__(self, count: int) -> _Pass:
        """Makes this one of several passes whose squares are averaged."""
        factor = 1 / math.sqrt(count)
        return _Pass(self.length, {key: one * factor for key, one in self.samples.items()})


def _projected(shadows: Shadows, values: _Values, is_joint: bool) -> _Pass:
    """Returns one number per sample, or, for what all samples make together, one number."""
    length = 1 if is_joint else values.num_samples
    samples: dict[_Key, Samples] = {}
    for one, rows in zip(shadows.projections, values.projected, strict=True):
        key = (one.unit, one.giver)
        samples[key] = samples.get(key, np.zeros(length)) + _by_sample(rows, length)
    return _Pass(length, samples)


def _joined(passes: Sequence[_Pass]) -> dict[_Key, Samples]:
    """Puts the samples of all passes one behind the other."""
    keys = dict.fromkeys(key for one in passes for key in one.samples)
    return {
        key: np.concatenate([one.samples.get(key, np.zeros(one.length)) for one in passes])
        for key in keys
    }


def _units_that_are_bad(shadows: Shadows, flags: Sequence[Any]) -> set[str]:
    return {path for path, flag in zip(shadows.nonfinite, flags, strict=True) if flag}


def _split(values: Sequence[Any], lengths: Sequence[int]) -> Iterator[list[Any]]:
    """Cuts a list into parts, and turns its tensors into arrays."""
    remaining = iter(values)
    for length in lengths:
        yield [one.numpy() for one in itertools.islice(remaining, length)]


def _by_sample(rows: NDArray[Any], num_samples: int) -> Samples:
    """Adds up the rows of each sample; what no sample owns is shared out among all."""
    wide = np.asarray(rows, np.float64)
    if len(wide) and len(wide) % num_samples == 0:
        return wide.reshape(num_samples, -1).sum(axis=1)  # type: ignore[no-any-return]
    return np.full(num_samples, wide.sum() / math.sqrt(num_samples))


def _mixed(*numbers: int) -> int:
    """Makes one seed of several numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] % 2**31)
