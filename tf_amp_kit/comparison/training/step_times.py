"""How long the train steps of each precision take, with and without XLA."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit.comparison.timing import Quartiles, time_interleaved
from tf_amp_kit.comparison.training.candidates import Candidate
from tf_amp_kit.comparison.training.record.parts import StepSpeed
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.sources import Source
from tf_amp_kit.data import Batch, num_samples
from tf_amp_kit.inspection.guard import StateGuard
from tf_amp_kit.inspection.readings import ScaleReader
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["StepClock", "measure_speeds"]

_MAX_ROUNDS: Final = 41
_SECONDS_PER_STEP: Final = 10.0

#: The speed by the candidate's name, and whether XLA compiles.
Speeds = dict[tuple[str, bool], StepSpeed]


def measure_speeds(
    builder: Builder, candidates: Sequence[Candidate], train: Source, seed: int, jit: bool
) -> Speeds:
    """Times whole train steps of all precisions in turns, in this process.

    A step is what `fit` calls for each batch, with metrics, update and loss scaling; the
    batch is there already. Times of `fit` are not taken: they hold the reading of data,
    callbacks, and stalls.

    Args:
        builder: Makes the models.
        candidates: The precisions.
        train: Gives the batch.
        seed: The seed of the models.
        jit: Whether to time XLA, too.

    Returns:
        The speeds by name and whether XLA compiles.
    """
    batch = next(train.steps(seed))
    speeds: Speeds = {}
    clocks: dict[tuple[str, bool], StepClock] = {}
    for candidate in candidates:
        for is_compiled in (False, True) if jit else (False,):
            key = (candidate.name, is_compiled)
            try:
                with builder.model(candidate, seed, batch) as model:
                    clocks[key] = StepClock(model, batch, jit_compile=is_compiled)
            except USER_CODE_ERRORS as error:
                speeds[key] = StepSpeed(None, failure=_in_words(error))
    return speeds | _timed(clocks, num_samples(batch))


def _timed(clocks: dict[tuple[str, bool], StepClock], size: int) -> Speeds:
    if not clocks:
        return {}
    runs = {f"{name} {is_compiled}": clocks[name, is_compiled] for name, is_compiled in clocks}
    times = time_interleaved(
        runs, max_rounds=_MAX_ROUNDS, budget_seconds=_SECONDS_PER_STEP * len(runs)
    )
    quartiles = (times.quartiles[name] for name in runs)
    return {
        key: _speed(clock, one, size)
        for (key, clock), one in zip(clocks.items(), quartiles, strict=True)
    }


def _speed(clock: StepClock, seconds: Quartiles, size: int) -> StepSpeed:
    return StepSpeed(
        seconds=seconds,
        compile_seconds=max(0.0, clock.first_seconds - seconds.median),
        examples_per_second=size / seconds.median,
    )


class StepClock:
    """Makes the same train step again and again.

    Args:
        model: A compiled model.
        batch: What it is trained on.
        jit_compile: Whether XLA compiles the step.

    Attributes:
        first_seconds: How long the first step took.
    """

    def __init__(self, model: Any, batch: Batch, *, jit_compile: bool) -> None:
        with warnings.catch_warnings():
            # Of Keras, for layers that XLA cannot compile: it will say so itself.
            warnings.simplefilter("ignore")
            model.jit_compile = jit_compile
        model.optimizer.build(model.trainable_variables)
        # As the runs are, and as AmpMonitor does in `fit`.
        StateGuard(model, ScaleReader(model.optimizer)).protect()
        model.make_train_function(force=True)
        self._model = model
        self._batch = tuple(batch)
        start = time.perf_counter()
        self()
        self.first_seconds = time.perf_counter() - start

    def __call__(self) -> None:
        """Makes a step, and waits for it."""
        logs = self._model.train_function(iter([self._batch]))
        # A result that is read has been computed.
        for value in tf.nest.flatten(logs):
            float(value)


def _in_words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
