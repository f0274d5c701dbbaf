"""A comparison while it is made: rehearsal, runs, gradients, speed, memory."""

from __future__ import annotations

import time
from typing import Any, Final

import keras
import numpy as np

from tf_amp_kit import _keras, hardware
from tf_amp_kit.comparison.training.candidates import Candidate
from tf_amp_kit.comparison.training.gradients import gradients_along
from tf_amp_kit.comparison.training.memory_use import memory_of
from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.record.report import INTERRUPTION, ComparisonReport
from tf_amp_kit.comparison.training.results import report_of
from tf_amp_kit.comparison.training.running.builds import check_own
from tf_amp_kit.comparison.training.running.description import of_model
from tf_amp_kit.comparison.training.running.isolation import in_own_process, measured_run
from tf_amp_kit.comparison.training.running.run import INTERRUPTED, USER_MISTAKES, Run
from tf_amp_kit.comparison.training.running.sources import fingerprint
from tf_amp_kit.comparison.training.setup import Findings, Setup
from tf_amp_kit.comparison.training.step_times import measure_speeds
from tf_amp_kit.data import Batch, num_samples
from tf_amp_kit.errors import InputsError, ProcessDiedError
from tf_amp_kit.inspection.audit import audit_layer_dtypes
from tf_amp_kit.inspection.expected import computes_in
from tf_amp_kit.precision.pinning.registry import pinned_paths
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import LOSS
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Comparison"]

# The finding of an audit that dimensions waste tensor cores.
_ODD_DIMENSIONS: Final = "AMP403"


class Comparison:
    """A comparison while it is made."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._found = Findings()

    def make(self, *, time_steps: bool, jit: bool) -> ComparisonReport:
        """Does everything, and freezes it."""
        start = time.monotonic()
        batch = self._setup.train.check_that_it_repeats()
        self._rehearse(batch)
        try:
            self._train()
            self._compare_gradients()
            if time_steps:
                self._time(jit=jit)
            self._look_at_memory(batch)
        except KeyboardInterrupt:
            if not any(not run.failure for run in self._found.runs):
                raise
            self._found.notes.append(INTERRUPTION)
        return report_of(self._setup, self._found, time.monotonic() - start)

    def _rehearse(self, batch: Batch) -> None:
        """Builds each model once, so that mistakes are told before any training."""
        setup, first, weights = self._setup, None, None
        for candidate in setup.candidates:
            try:
                with setup.builder.model(candidate, setup.seeds[0], batch, weights) as model:
                    if first is None:
                        first, weights = model, model.get_weights()
                        self._try_out(model, batch)
                    else:
                        check_own(model, first)
                    self._note_pins(candidate, LayerPaths(model))
            except USER_CODE_ERRORS as error:
                # What half precision makes fail is a result, and told as the run's.
                if candidate.is_float32 or isinstance(error, USER_MISTAKES):
                    raise
                setup.progress.say(f"{candidate.name} fails: {type(error).__name__}: {error}")

    def _try_out(self, model: Any, batch: Batch) -> None:
        """Looks whether float32 can be trained and evaluated on the data."""
        self._found.model_name = model.name
        self._found.batch_size = num_samples(batch)
        self._describe(model, batch)
        if type(model).train_step is keras.Model.train_step:
            trace_step(model, tuple(batch), until=LOSS)
        validation = self._setup.validation
        if validation is None:
            return
        validation.check_that_it_ends(validation.open())
        x, y, weights = validation.check_that_it_repeats()
        try:
            values = model.test_on_batch(x, y, sample_weight=weights, return_dict=True)
        except USER_CODE_ERRORS as error:
            raise InputsError(
                "The model cannot be evaluated on validation_data. Expected data of the form of "
                f"train_data, and a loss or a test_step. Received: {type(error).__name__}: {error}"
            ) from error
        self._found.directions = _keras.metric_directions(model)
        odd = [name for name, value in values.items() if np.ndim(value)]
        if odd:
            self._found.notes.append(f"{some(odd)} of the metrics are no numbers: left out.")

    def _note_pins(self, candidate: Candidate, paths: LayerPaths) -> None:
        self._found.num_pins[candidate.name] = len(pinned_paths(paths))
        if not computes_in(candidate.state.precision, layer_facts(paths)):
            self._found.notes.append(
                f"With its pins, no layer with weights of {candidate.name} computes in half "
                "precision: it is float32 once more."
            )

    def _describe(self, model: Any, batch: Batch) -> None:
        setup = self._setup
        validation = setup.validation
        setup.folder.describe(
            {
                "num_steps": setup.schedule.num_steps,
                "batch_size": setup.train.batch_size,
                "kept_at": list(setup.schedule.kept_at),
                "pin": setup.builder.pin,
                "first_seed": setup.seeds[0],
                "first_batch": fingerprint(batch),
                "first_validation_batch": (
                    None if validation is None else fingerprint(validation.check_that_it_repeats())
                ),
                **of_model(model),
            }
        )

    def _train(self) -> None:
        setup = self._setup
        for candidate, seed in setup.order():
            run = self._run(candidate, seed)
            record = run.kept() if setup.is_resumable else None
            if record is None:
                try:
                    record = self._made(run)
                except KeyboardInterrupt:
                    # It may be finished, and only have been tried again.
                    self._found.runs += [kept] if (kept := run.kept()) else []
                    raise
                if record.failure == INTERRUPTED:
                    self._found.runs.append(record)
                    raise KeyboardInterrupt
                if not record.failure:
                    run.keep(record)
                self._found.runs.append(record)
                setup.progress.end(record)
            else:
                self._found.runs.append(record)

    def _run(self, candidate: Candidate, seed: int) -> Run:
        setup = self._setup
        return Run(
            builder=setup.builder,
            candidate=candidate,
            seed=seed,
            train=setup.train,
            validation=setup.validation,
            schedule=setup.schedule_of(seed),
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
            if candidate.is_float32 or self._found.has_failed(candidate.name):
                continue
            setup.progress.say(f"{candidate.name}: comparing gradients")
            try:
                self._found.gradients[candidate.name] = self._called(
                    gradients_along,
                    setup.builder,
                    candidate,
                    setup.train,
                    setup.folder,
                    setup.seeds[0],
                    setup.schedule.compared_at,
                )
            except USER_CODE_ERRORS as error:
                self._found.notes.append(
                    f"The gradients of {candidate.name} could not be compared: {error}"
                )

    def _time(self, *, jit: bool) -> None:
        setup = self._setup
        candidates = [
            one
            for one in setup.candidates
            if not one.is_control and not self._found.has_failed(one.name)
        ]
        setup.progress.say("Timing train steps")
        try:
            self._found.speeds = self._called(
                measure_speeds, setup.builder, candidates, setup.train, setup.seeds[0], jit
            )
        except USER_CODE_ERRORS as error:
            self._found.notes.append(f"The train steps could not be timed: {error}")

    def _look_at_memory(self, batch: Batch) -> None:
        setup = self._setup
        setup.progress.say("Estimating memory")
        for candidate in setup.candidates:
            if not candidate.is_control and not self._found.has_failed(candidate.name):
                with setup.builder.model(candidate, setup.seeds[0], batch) as model:
                    self._found.memory[candidate.name], note = memory_of(model, batch)
                    self._look_for_odd_dimensions(model, batch)
                self._found.notes += [f"{candidate.name}: {note}"] if note else []

    def _look_for_odd_dimensions(self, model: Any, batch: Batch) -> None:
        device = hardware.detect_hardware().default_device
        if device is not None and device.kind == "gpu":
            findings = audit_layer_dtypes(model, inputs=batch.x, verbose=0).findings
            odd = (one for one in findings if one.code == _ODD_DIMENSIONS)
            self._found.odd_layers += [path for one in odd for path in one.affects]

    def _called(self, function: Any, *args: Any) -> Any:
        return in_own_process(function, *args) if self._setup.is_isolated else function(*args)
