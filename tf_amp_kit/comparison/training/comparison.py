"""A comparison while it is made: rehearsal, runs, gradients, speed, memory, judgement."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit import _keras, hardware
from tf_amp_kit.comparison.training.candidates import FLOAT32, Candidate
from tf_amp_kit.comparison.training.gradients import gradients_along
from tf_amp_kit.comparison.training.judging import differences_between, judge, measure_of
from tf_amp_kit.comparison.training.recommending import recommend
from tf_amp_kit.comparison.training.record.parts import (
    GradientPoint,
    PrecisionResult,
    TrainingRun,
)
from tf_amp_kit.comparison.training.record.report import INTERRUPTION, ComparisonReport
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.isolation import (
    in_own_process,
    measured_run,
)
from tf_amp_kit.comparison.training.running.progress import Progress
from tf_amp_kit.comparison.training.running.run import INTERRUPTED, USER_MISTAKES, Run, Schedule
from tf_amp_kit.comparison.training.running.sources import Source, fingerprint
from tf_amp_kit.comparison.training.step_times import Speeds, measure_speeds
from tf_amp_kit.data import Batch, batches_of, num_samples
from tf_amp_kit.errors import ProcessDiedError
from tf_amp_kit.precision.pinning.registry import pinned_paths
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Comparison", "Setup"]


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

    def order(self) -> Iterator[tuple[Candidate, int]]:
        """Yields the runs, those of the first seeds first: float32 leads, the others follow."""
        for position in range(len(self.float32_seeds)):
            for candidate in self.candidates:
                seeds = self.seeds_of(candidate)
                if position < len(seeds):
                    yield candidate, seeds[position]


class Comparison:
    """A comparison while it is made."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runs: list[TrainingRun] = []
        self._num_pins: dict[str, int] = {}
        self._directions: dict[str, str | None] = {}
        self._gradients: dict[str, tuple[GradientPoint, ...]] = {}
        self._speeds: Speeds = {}
        self._notes: list[str] = []
        self._model_name = ""

    def make(self, *, time_steps: bool, jit: bool) -> ComparisonReport:
        """Does everything, and freezes it."""
        start = time.monotonic()
        batch = self._setup.train.check_that_it_repeats()
        self._rehearse(batch)
        self._describe(batch)
        try:
            self._train()
            self._compare_gradients()
            if time_steps:
                self._time(jit=jit)
        except KeyboardInterrupt:
            if not any(not run.failure for run in self._runs):
                raise
            self._notes.append(INTERRUPTION)
        return self._freeze(batch, time.monotonic() - start)

    def _rehearse(self, batch: Batch) -> None:
        """Builds each model once, so that mistakes are told before any training."""
        setup, weights = self._setup, None
        for candidate in setup.candidates:
            try:
                with setup.builder.model(candidate, setup.seeds[0], batch, weights) as model:
                    if candidate.is_reference:
                        weights = model.get_weights()
                        self._model_name = model.name
                        self._directions = self._metrics_of(model, batch)
                    self._num_pins[candidate.name] = len(pinned_paths(LayerPaths(model)))
            except USER_CODE_ERRORS as error:
                # What half precision makes fail is a result, and told as the run's.
                if candidate.is_float32 or isinstance(error, USER_MISTAKES):
                    raise

    def _metrics_of(self, model: Any, batch: Batch) -> dict[str, str | None]:
        if self._setup.validation is not None:
            data = self._setup.validation.open()
            self._setup.validation.check_that_it_ends(data)
            batch = next(batches_of(data, self._setup.validation.batch_size))
        model.test_on_batch(batch.x, batch.y, sample_weight=batch.sample_weight)
        return _keras.metric_directions(model)

    def _describe(self, batch: Batch) -> None:
        setup = self._setup
        setup.folder.describe(
            {
                "num_steps": setup.schedule.num_steps,
                "batch_size": setup.train.batch_size,
                "has_validation": setup.validation is not None,
                "kept_at": list(setup.schedule.kept_at),
                "pin": setup.builder.pin,
                "first_batch": fingerprint(batch),
            }
        )

    def _train(self) -> None:
        setup = self._setup
        for candidate, seed in setup.order():
            kept = setup.folder.run(candidate.name, seed) if setup.is_resumable else None
            run = kept or self._made(self._run(candidate, seed))
            self._runs.append(run)
            if run.failure == INTERRUPTED:
                raise KeyboardInterrupt
            if kept is None:
                setup.folder.save_run(run)
                setup.progress.end(run)

    def _run(self, candidate: Candidate, seed: int) -> Run:
        setup = self._setup
        return Run(
            builder=setup.builder,
            candidate=candidate,
            seed=seed,
            train=setup.train,
            validation=setup.validation,
            schedule=setup.schedule,
            folder=setup.folder,
            is_resumable=setup.is_resumable,
            tries_again=seed == setup.seeds_of(candidate)[0],
            progress=setup.progress,
        )

    def _made(self, run: Run) -> TrainingRun:
        if not self._setup.is_isolated:
            return run.make()
        try:
            record: TrainingRun = in_own_process(measured_run, run)
        except ProcessDiedError as death:
            if run.candidate.is_reference:
                raise
            record = TrainingRun(run.candidate.name, run.seed, (), failure=str(death))
        return record

    def _compare_gradients(self) -> None:
        setup = self._setup
        for candidate in setup.candidates:
            if candidate.is_float32 or self._has_failed(candidate.name):
                continue
            setup.progress.say(f"{candidate.name}: comparing gradients")
            try:
                self._gradients[candidate.name] = self._called(
                    gradients_along,
                    setup.builder,
                    candidate,
                    setup.train,
                    setup.folder,
                    setup.seeds[0],
                    setup.schedule.compared_at,
                )
            except USER_CODE_ERRORS as error:
                self._notes.append(
                    f"The gradients of {candidate.name} could not be compared: {error}"
                )

    def _time(self, *, jit: bool) -> None:
        setup = self._setup
        candidates = [
            one for one in setup.candidates if not one.is_control and not self._has_failed(one.name)
        ]
        setup.progress.say("Timing train steps")
        self._speeds = self._called(
            measure_speeds, setup.builder, candidates, setup.train, setup.seeds[0], jit
        )

    def _called(self, function: Any, *args: Any) -> Any:
        return in_own_process(function, *args) if self._setup.is_isolated else function(*args)

    def _has_failed(self, name: str) -> bool:
        return any(run.failure for run in self._runs if run.name == name)

    def _freeze(self, batch: Batch, seconds: float) -> ComparisonReport:
        setup = self._setup
        finished = [run for run in self._runs if not run.failure]
        reference = [run for run in finished if run.name == FLOAT32]
        results = tuple(self._result(one, reference, finished) for one in setup.candidates)
        return ComparisonReport(
            model_name=self._model_name,
            machine=_machine(),
            batch_size=num_samples(batch),
            num_steps=setup.schedule.num_steps,
            seeds=setup.seeds,
            tolerance=setup.tolerance,
            measure=measure_of(reference),
            results=results,
            runs=tuple(self._runs),
            recommendation=recommend(results),
            seconds=seconds,
            notes=(*self._notes, *self._about_repeating()),
        )

    def _result(
        self, candidate: Candidate, reference: list[TrainingRun], finished: list[TrainingRun]
    ) -> PrecisionResult:
        setup, name = self._setup, candidate.name
        own = [run for run in finished if run.name == name]
        differences = differences_between(reference, own, self._directions)
        verdict = judge(
            [run for run in self._runs if run.name == name],
            differences,
            num_steps=setup.schedule.num_steps,
            tolerance=setup.tolerance,
        )
        return PrecisionResult(
            name=name,
            precision=candidate.state.precision,
            level=candidate.state.level,
            num_pins=self._num_pins.get(name, 0),
            verdict=None if candidate.is_reference else verdict,
            differences=differences,
            gradients=self._gradients.get(name, ()),
            speed=self._speeds.get((name, False)),
            jit_speed=self._speeds.get((name, True)),
        )

    def _about_repeating(self) -> Iterator[str]:
        names = [run.name for run in self._runs if run.repeats_exactly is False]
        if names:
            yield (
                f"Made again, the first steps of {', '.join(names)} did not give the same losses "
                "bit for bit: operations here add up in another order each time. "
                "tf.config.experimental.enable_op_determinism() keeps the order where it can."
            )


def _machine() -> str:
    device = hardware.detect_hardware().default_device
    named = "no device" if device is None else f"{device.name} {device.model or ''}".strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{named}, {cores} CPU cores, TensorFlow {tf.__version__}, Keras {keras.__version__}"
