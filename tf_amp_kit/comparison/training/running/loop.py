"""The loop of one run: step after step, with all that is looked at on the way."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.comparison.training.candidates import FLOAT32
from tf_amp_kit.comparison.training.record.parts import Drift, Evaluation, TrainingRun
from tf_amp_kit.comparison.training.running.interruption import interruption_deferred
from tf_amp_kit.comparison.training.running.sources import Source, check_same, fingerprint
from tf_amp_kit.comparison.training.running.states import (
    all_variables,
    as_arrays,
    drift_between,
    each_array,
)
from tf_amp_kit.data import Batch
from tf_amp_kit.errors import InputsError
from tf_amp_kit.inspection.guard import StateGuard
from tf_amp_kit.inspection.readings import ScaleReader

if TYPE_CHECKING:
    from tf_amp_kit.comparison.training.running.run import Run

__all__ = ["Training", "evaluated"]

# A loss that is not finite for so long does not come back.
_MAX_NONFINITE: Final = 20
_SAVE_SECONDS: Final = 60.0


class Training:
    """A run while it is made."""

    def __init__(self, run: Run, *, is_again: bool = False) -> None:
        self._run = run
        self._is_again = is_again
        self._is_reference = run.candidate.is_reference
        self._source = run.train.opened()
        self._validation = run.validation and run.validation.opened()
        self.record = TrainingRun(run.candidate.name, run.seed, ())
        self._seen: list[int] = []
        self._started = self._saved = time.monotonic()
        self._before = 0.0
        self._has_metrics = False

    def go(self) -> None:
        """Trains to the end, or to where it cannot go on."""
        run = self._run
        if not self._is_reference and not run.candidate.is_control:
            self._seen = run.folder.fingerprints(run.seed)
        with self._model() as model, interruption_deferred() as interruption:
            self._losses, self._num_nonfinite = list(self.record.losses), 0
            done = len(self._losses)
            batches = self._source.steps(run.seed)
            for step, batch in zip(range(run.schedule.num_steps), batches, strict=False):
                self._check(step, batch)
                if step < done:
                    continue
                self._look(model, step)
                self._train(model, batch)
                if self._num_nonfinite >= _MAX_NONFINITE:
                    self._give_up()
                    break
                self._save_now_and_then(model, at_once=interruption.is_due)
                interruption.raise_if_due()
            else:
                self._look(model, run.schedule.num_steps)
            self._finish()

    @contextlib.contextmanager
    def _model(self) -> Iterator[Any]:
        run = self._run
        folder, seed = run.folder, run.seed
        first = next(self._source.steps(seed))
        is_first = self._is_reference and not folder.has_weights(FLOAT32, seed, 0)
        is_own = is_first or run.candidate.is_control
        weights = None if is_own else folder.weights(FLOAT32, seed, 0)
        with contextlib.ExitStack() as stack:
            with run.user_code():
                model = stack.enter_context(run.builder.model(run.candidate, seed, first, weights))
                optimizer = model.optimizer
                if optimizer is not None:
                    optimizer.build(model.trainable_variables)
            if is_first:
                folder.save_weights(FLOAT32, seed, 0, as_arrays(model.weights))
            # A model that owns several may be compiled with none.
            self._optimizer = ScaleReader(optimizer or keras.optimizers.SGD())
            self._guard = StateGuard(model, self._optimizer)
            self._guard.protect()
            self._take_up(model)
            yield model

    def _take_up(self, model: Any) -> None:
        """Goes on where an earlier program was stopped."""
        run = self._run
        kept = run.folder.unfinished(run.candidate.name, run.seed) if run.is_resumable else None
        if kept is None:
            return
        record, values, seen = kept
        variables = all_variables(model)
        if len(variables) != len(values):
            return
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        self.record = replace(record, failure="")
        self._before = record.seconds
        self._seen = seen or self._seen

    def _check(self, step: int, batch: Batch) -> None:
        """Sees to it that all precisions get the same batches."""
        if self._run.candidate.is_control:
            return
        value = fingerprint(batch)
        if step < len(self._seen):
            check_same(self._seen[step], value, step)
        else:
            self._seen.append(value)

    def _train(self, model: Any, batch: Batch) -> None:
        before = self._skipped(len(self._losses))
        with self._run.user_code():
            # Keras 3.10 goes on with the means that it has, of an evaluation too.
            model.reset_metrics()
            logs = model.train_on_batch(
                batch.x, batch.y, sample_weight=batch.sample_weight, return_dict=True
            )
        if "loss" not in logs:
            raise InputsError(
                "The model's train_step returns no loss. Expected a dictionary with 'loss'. "
                f"Received: {sorted(logs)}."
            )
        was_skipped = self._skipped(len(self._losses) + 1) > before
        # A skipped step is kept out of the mean, which is 0 then.
        loss = math.nan if was_skipped else float(logs["loss"])
        self._losses.append(loss)
        is_bad = not math.isfinite(loss) and not was_skipped
        self._num_nonfinite = self._num_nonfinite + 1 if is_bad else 0
        if not self._has_metrics:
            # The mean behind the loss is there from the first step on.
            self._has_metrics = True
            self._guard.protect()
        self._check_float32(loss, f"at step {len(self._losses)}")
        self._note()
        self._run.progress.step(self.record)

    def _check_float32(self, loss: float, where: str) -> None:
        if self._run.candidate.is_float32 and not math.isfinite(loss):
            raise InputsError(
                f"The loss is {loss} in float32 already, {where} with seed {self._run.seed}: "
                "there is nothing to compare half precision with. Lower the learning rate or "
                "look at the data; find_nonfinite(model, data) tells where it comes from."
            )

    def _skipped(self, num_steps: int) -> int:
        """Returns how many of so many steps were skipped."""
        if not self._optimizer.may_skip:
            return 0
        if self._optimizer.counts_steps:
            return self._optimizer.read().skipped_steps
        # Keras's own does not count: its iterations stay behind. By way of TensorFlow: a
        # variable of several replicas is no number to Python.
        optimizer = self._optimizer.optimizer
        if (optimizer.inner_optimizer.gradient_accumulation_steps or 1) > 1:
            return 0  # its iterations count the updates, of which each takes several steps
        return num_steps - int(tf.convert_to_tensor(optimizer.iterations.value))

    def _look(self, model: Any, step: int) -> None:
        """Evaluates, keeps weights and compares them, if it is time to."""
        run = self._run
        if step in run.schedule.evaluated_at and self._validation is not None:
            with run.user_code():
                values = evaluated(model, self._validation)
            self._check_float32(values["loss"], f"on the validation data after {step} steps")
            done = (*self.record.evaluations, Evaluation(step, values))
            self.record = replace(self.record, evaluations=done)
        if step not in run.schedule.kept_at or not step or run.candidate.is_control:
            return
        if self._is_reference:
            run.folder.save_weights(FLOAT32, run.seed, step, as_arrays(model.weights))
        else:
            self.record = replace(self.record, drift=(*self.record.drift, self._drift(model, step)))

    def _drift(self, model: Any, step: int) -> Drift:
        folder, seed = self._run.folder, self._run.seed
        there, start = (folder.each_weight(FLOAT32, seed, one) for one in (step, 0))
        return drift_between(step, each_array(model.weights), there, start)

    def _note(self) -> None:
        """Brings the record up to date."""
        self.record = replace(
            self.record,
            losses=tuple(self._losses),
            skipped_steps=self._skipped(len(self._losses)),
            seconds=self._before + time.monotonic() - self._started,
        )

    def _finish(self) -> None:
        self._note()
        self.record = replace(self.record, loss_scale=self._optimizer.read().scale)
        if self._is_reference and not self._is_again:
            self._run.folder.save_fingerprints(self._run.seed, self._seen)

    def _give_up(self) -> None:
        first = len(self._losses) - self._num_nonfinite + 1
        self.record = replace(
            self.record, failure=f"its loss is NaN or infinite from step {first} on"
        )

    def stop(self, failure: str) -> None:
        """Ends the run where it is."""
        self.record = replace(self.record, failure=failure)

    def _save_now_and_then(self, model: Any, *, at_once: bool) -> None:
        is_time = at_once or time.monotonic() - self._saved >= _SAVE_SECONDS
        if self._run.is_resumable and is_time:
            self._saved = time.monotonic()
            self._run.folder.save_unfinished(
                self.record, as_arrays(all_variables(model)), self._seen
            )


def evaluated(model: Any, validation: Source) -> dict[str, float]:
    """Evaluates a model.

    Args:
        model: A compiled model.
        validation: What on.

    Returns:
        The metrics that are numbers, by name, `"loss"` among them.

    Raises:
        InputsError: If there is no loss among them.
    """
    data = validation.open()
    options: dict[str, Any] = {"verbose": 0, "return_dict": True}
    if isinstance(data, tuple):
        x, y, weights = (*data, None, None)[:3]
        size = validation.batch_size or len(tf.nest.flatten(x)[0])
        values = model.evaluate(x, y, sample_weight=weights, batch_size=size, **options)
    else:
        values = model.evaluate(data, **options)
    if "loss" not in values:
        raise InputsError(
            "The model's test_step returns no loss. Expected a dictionary with 'loss'. "
            f"Received: {sorted(values)}."
        )
    return {name: float(value) for name, value in values.items() if np.ndim(value) == 0}
