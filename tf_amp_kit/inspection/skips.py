"""Getting hold of the batch that made one step too many be skipped.

The one execution that may go too far is fed by hand.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import AmpError, LossScaleWarning, OptimizerError, TrainingStuckError
from tf_amp_kit.inspection.feeding import feed_by_hand, of_all_replicas
from tf_amp_kit.inspection.readings import ScaleReader
from tf_amp_kit.precision.loss_scaling.state import LossScaleState
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["DEFAULT_SKIPS", "REPORT", "SkipWatch"]

REPORT: Final = "report"

# From the first scale of 2**15 as many halvings lead to 1: a scale that only
# began too high is never more than this many skips away from one that fits.
DEFAULT_SKIPS: Final = 15


def _find_nonfinite(model: Any, batch: Any, loss_scale: float) -> Any:
    # Late: a fit in which all is well needs nothing of it.
    from tf_amp_kit.inspection.nonfinite.find import find_nonfinite

    return find_nonfinite(model, batch, loss_scale=loss_scale, batch_size=None, verbose=0)


class SkipWatch(keras.callbacks.Callback):
    """Finds the origin of NaN or Inf once too many steps in a row were skipped.

    While `n` more skips would not be too many, `n` steps run unseen. So a healthy
    run is read once in `consecutive_skips` steps, and its train function is the
    one that Keras made. It belongs at the end of the callbacks, by way of
    `prepare`: then nothing comes between its hook and the step.

    Args:
        on_nonfinite: `"report"` to print the report, or what to call with it; None
            for a watch that is of no use.
        consecutive_skips: Skipped steps in a row, within one fit, that are fine.
        verbose: 0 to print nothing.

    Attributes:
        report: What was found in this fit, or None.
        batch: The batch that it was found with, as the data set gave it, of all
            replicas of this process; None before.

    Raises:
        OptimizerError: If an argument is out of its range.
    """

    # Takes model, batch and loss scale: a place to put something else in tests.
    find = staticmethod(_find_nonfinite)

    def __init__(self, on_nonfinite: Any, consecutive_skips: int, *, verbose: int = 1) -> None:
        _check_arguments(on_nonfinite, consecutive_skips)
        super().__init__()
        self._on_nonfinite = on_nonfinite
        self._max_row = int(consecutive_skips)
        self._verbose = verbose
        self.report: Any = None
        self.batch: Any = None

    def prepare(self, model: Any, params: dict[str, Any], reader: ScaleReader) -> bool:
        """Forgets an earlier fit, and warns if there will be nothing to find.

        Args:
            model: The model in training.
            params: The parameters of this fit, as callbacks get them.
            reader: The reader of the optimizer that skips.

        Returns:
            Whether it is of use in this fit.
        """
        self.set_model(model)
        self.set_params(params)
        self.report = self.batch = None
        self._reader = reader
        self._start: LossScaleState | None = None
        self._num_unseen = 0
        self._is_done = False
        if self._on_nonfinite is None:
            return False
        reason = _why_useless(reader, self._max_row)
        if reason:
            _warn(f"on_nonfinite will find nothing: {reason}")
        return reader.counts_steps

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Notes which epoch it is."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Lets the next steps run as they are, unless they may be one skip too many."""
        if self._is_done:
            return
        num_steps = self.model.steps_per_execution
        if self._num_unseen < num_steps:
            self._look()
        if self._num_unseen < num_steps:
            feed_by_hand(self.model, batch, self._fed)
        else:
            self._num_unseen -= num_steps

    def _look(self) -> None:
        self._state = self._reader.read()
        self._start = self._start or self._state
        self._num_unseen = self._max_row - self._row()

    def _row(self) -> int:
        """Skipped steps in a row; those of an earlier fit do not count."""
        if self._start is None:
            return 0
        skipped = self._state.skipped_steps - self._start.skipped_steps
        # Negative where somebody loaded an earlier state since.
        return min(self._state.consecutive_skips, max(0, skipped))

    def _fed(self, function: Callable[[Any], Any], alone: Any, batch: Any, step: int) -> Any:
        try:
            outputs = function(alone)
        except (TrainingStuckError, tf.errors.InvalidArgumentError):
            # The optimizer counts the skip before it gives up.
            self._judge(batch, step)
            raise
        self._judge(batch, step)
        return outputs

    def _judge(self, batch: Any, step: int) -> None:
        """Looks whether this batch's step was one skip too many."""
        if self._is_done:
            return
        before = self._state
        self._look()
        was_skipped = self._state.skipped_steps > before.skipped_steps
        if was_skipped and self._row() > self._max_row:
            self._is_done = True
            self.batch = of_all_replicas(batch, self.model.distribute_strategy)
            self._find(before.scale, step)

    def _find(self, loss_scale: float, step: int) -> None:
        place = (
            f"Epoch {self._epoch + 1}, step {step + 1}: {self._row()} skipped "
            f"{'step' if self._row() == 1 else 'steps in a row'}, the last one at loss scale "
            f"{loss_scale:g}"
        )
        try:
            self.report = self.find(self.model, self.batch, loss_scale)
        except (AmpError, *USER_CODE_ERRORS) as error:  # training goes on
            _warn(
                f"{place}. Where NaN or Inf came from could not be found "
                f"({type(error).__name__}): {error}"
            )
            return
        if self._on_nonfinite != REPORT:
            self._on_nonfinite(self.report)
        elif self._verbose:
            # Keras's progress bar leaves the cursor behind what it has drawn.
            start = "\n" if self.params.get("verbose") in (1, "auto") else ""
            print(f"{start}{place}. With its batch:\n{self.report}")


def _why_useless(reader: ScaleReader, max_row: int) -> str:
    kind = type(reader.optimizer).__name__
    if not reader.counts_steps:
        fact = "does not count the steps that it skips" if reader.may_skip else "never skips a step"
        return (
            f"{kind} {fact}. Expected an optimizer of make_loss_scale_optimizer(). For a batch "
            "that you suspect, call find_nonfinite(model, batch)."
        )
    limit = reader.optimizer.ledger.settings.max_consecutive_skips
    if limit is not None and max_row >= limit:
        return (
            f"training ends at {limit} skipped steps in a row. Expected consecutive_skips below "
            f"max_consecutive_skips={limit}. Received: consecutive_skips={max_row}."
        )
    return ""


def _check_arguments(on_nonfinite: Any, consecutive_skips: Any) -> None:
    if on_nonfinite not in (None, REPORT) and not callable(on_nonfinite):
        raise OptimizerError(
            f"Expected None, {REPORT!r} or a function that takes the report. "
            f"Received: on_nonfinite={on_nonfinite!r}."
        )
    if (
        not isinstance(consecutive_skips, Integral)
        or isinstance(consecutive_skips, bool)
        or consecutive_skips < 0
    ):
        raise OptimizerError(
            "Expected a whole number of steps from 0 up. "
            f"Received: consecutive_skips={consecutive_skips!r}."
        )


def _warn(message: str) -> None:
    warnings.warn(message, LossScaleWarning, stacklevel=stacklevel_of_user())
