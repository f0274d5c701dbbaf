"""One run: a model trained in one precision, with one seed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tf_amp_kit.comparison.training.candidates import Candidate
from tf_amp_kit.comparison.training.record.parts import TrainingRun
from tf_amp_kit.comparison.training.running.builds import Builder
from tf_amp_kit.comparison.training.running.description import of_candidate
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.comparison.training.running.loop import Training
from tf_amp_kit.comparison.training.running.progress import Progress
from tf_amp_kit.comparison.training.running.sources import Source
from tf_amp_kit.errors import InputsError, ModelError, PinError
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["INTERRUPTED", "USER_MISTAKES", "Run", "Schedule"]

#: What is no result, but a mistake in what was given.
USER_MISTAKES: Final = (InputsError, ModelError, PinError)

#: What a run failed of that was stopped by hand.
INTERRUPTED: Final = "interrupted"

# So many steps are made twice, to see whether they repeat bit for bit.
_NUM_REPEATED: Final = 10


class RaisedInHalf(Exception):  # noqa: N818 - it is told as a result, not as an error
    """The model's own code raised, in a precision whose errors are results."""


@dataclass(frozen=True)
class Schedule:
    """At which steps what is done.

    Attributes:
        num_steps: How many steps a run has.
        evaluated_at: After how many steps the validation data are looked at.
        kept_at: After how many steps the weights of float32 are kept, and compared.
        compared_at: After how many steps of float32 gradients are compared.
    """

    num_steps: int
    evaluated_at: tuple[int, ...]
    kept_at: tuple[int, ...]
    compared_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Run:
    """What a run needs; it can be sent to another process.

    Attributes:
        builder: Makes the model.
        candidate: The precision.
        seed: The seed.
        train: The batches to train on.
        validation: What to evaluate on, or None.
        schedule: At which steps what is done.
        folder: Where float32 keeps its weights, and other runs find them.
        is_resumable: Whether an unfinished run is kept in the folder, too.
        tries_again: Whether the first steps are made twice.
        progress: Tells how far it is.
    """

    builder: Builder
    candidate: Candidate
    seed: int
    train: Source
    validation: Source | None
    schedule: Schedule
    folder: Folder
    is_resumable: bool
    tries_again: bool
    progress: Progress

    def make(self) -> TrainingRun:
        """Trains, and makes the first steps again if that is asked for."""
        return self.tried_again(self.trained())

    def trained(self) -> TrainingRun:
        """Trains.

        Returns:
            The record. A run that cannot go on, or is interrupted, tells so in `failure`.

        Raises:
            InputsError: If the data are not those of float32, or if float32 itself comes
                to a loss that is not finite.
            Exception: Whatever the model's code raises in float32.
        """
        training = Training(self)
        try:
            training.go()
        except KeyboardInterrupt:
            training.stop(INTERRUPTED)
        except RaisedInHalf as raised:
            training.stop(str(raised))
        return training.record

    def tried_again(self, record: TrainingRun) -> TrainingRun:
        """Keeps a finished run, and tells whether its first steps repeat, if that is asked for."""
        if record.failure:
            return record
        # At once: what comes after may be interrupted.
        self.keep(record)
        if not self.tries_again:
            return record
        return replace(record, repeats_exactly=self._repeats(record))

    def keep(self, record: TrainingRun) -> None:
        """Keeps a finished run."""
        self.folder.save_run(record, of_candidate(self.candidate))

    def kept(self) -> TrainingRun | None:
        """Returns the finished run that is kept, or None."""
        return self.folder.run(self.candidate.name, self.seed, of_candidate(self.candidate))

    @contextlib.contextmanager
    def user_code(self) -> Iterator[None]:
        """Tells errors that the model's own code raises in half precision from others.

        Raises:
            RaisedInHalf: Instead of these.
        """
        try:
            yield
        except USER_CODE_ERRORS as error:
            if isinstance(error, USER_MISTAKES) or self.candidate.is_float32:
                raise
            raise RaisedInHalf(f"{type(error).__name__}: {_first_line(error)}") from error

    def _repeats(self, record: TrainingRun) -> bool | None:
        """Makes the first steps again; None if that fails, whatever the reason."""
        steps = min(_NUM_REPEATED, self.schedule.num_steps)
        evaluated_at = tuple(one for one in self.schedule.evaluated_at if one < steps)
        again = replace(
            self,
            schedule=Schedule(steps, evaluated_at=evaluated_at, kept_at=()),
            is_resumable=False,
            tries_again=False,
            progress=self.progress.muted(),
        )
        training = Training(again, is_again=True)
        try:
            training.go()
        except (RaisedInHalf, *USER_CODE_ERRORS):
            return None
        return np.array_equal(training.record.losses, record.losses[:steps], equal_nan=True)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""
