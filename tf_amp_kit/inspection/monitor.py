"""A callback that shows what loss scaling does, and looks after it."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from typing import Any, Final

import keras

from tf_amp_kit.callers import running_methods_of, stacklevel_of_user
from tf_amp_kit.errors import LossScaleWarning, OptimizerError
from tf_amp_kit.inspection.board import Board
from tf_amp_kit.inspection.guard import StateGuard
from tf_amp_kit.inspection.monitor_arguments import check_arguments
from tf_amp_kit.inspection.readings import Interval, ScaleReader, Trend
from tf_amp_kit.inspection.skips import DEFAULT_SKIPS, SkipWatch
from tf_amp_kit.precision.loss_scaling.state import LossScaleState

__all__ = ["AmpMonitor"]

# A reading waits for the device. One in 100 steps is lost in the noise, and a
# run that is stuck loses no more than these.
_DEFAULT_PERIOD: Final = 100

# A healthy scale is tried out once in 2000 steps, and skips that one. One step
# in 20 is a hundred times that, and data that nobody learns from.
_MAX_SKIP_RATE: Final = 0.05

_NUM_EXAMPLES: Final = 3


class AmpMonitor(keras.callbacks.Callback):
    """Logs the loss scale and the skipped steps, protects state, and ends hopeless runs.

    To the logs of each epoch it adds `loss_scale`, as it is at the epoch's end,
    `skipped_steps` and `skip_rate` (0 to 1), both of that epoch alone. `History`,
    `CSVLogger` and `TensorBoard` show them wherever they stand: the monitor moves
    itself to the front of the list of callbacks. An optimizer that does not scale
    gives 1.0, 0 and 0.0. Keras's own `LossScaleOptimizer` does not count its
    skips: they are logged as NaN, and a warning says so.

    It calls the optimizer's `protect(model)` before the first step of each epoch,
    so that a skipped step leaves no trace in moving statistics. With Keras's own
    `train_step` the mean behind the logged `loss` is protected too: it is then
    the mean over the applied steps, and NaN if there were none. Other metrics
    keep what a skipped batch did to them. The protection outlasts `fit`: in a
    later one without a monitor, an epoch that begins with a skipped step goes on
    from the mean of the epoch before. A subclassed model that was not built
    before `fit` is protected from its second batch on.

    Host values are read at the first batch of an epoch, every `every` steps, and
    at an epoch's end. What happens in between is seen at the next reading.

    Args:
        every: Batches between two readings; each of them then prints a line. None
            reads every 100 batches, and prints a line only where the scale moved.
        verbose: 1 prints lines, 0 none.
        max_skip_rate: Warns if more than this share of the steps is skipped, 0 to
            1, at three readings in a row; None for never.
        stop_on_nan: Stops training when the loss of an applied step is NaN or
            infinite; a skipped step's is no reason. With a `train_step` of the
            user's, skipped steps cannot be told from the others in the mean
            named `loss`, so it stops only if nothing was skipped in that epoch.
        optimizer: The optimizer to watch, for models that own several: one
            monitor for each. None means the compiled one.
        prefix: Stands before the names in the logs: `"generator_"`, for example.
        on_nonfinite: `"report"` looks once per fit for the origin of NaN or Inf,
            with the batch and the weights of the step that was skipped once too
            often, prints what it found, and goes on. A function gets the report
            instead. `nonfinite_report` and `nonfinite_batch` keep both.
        consecutive_skips: Skipped steps in a row that are fine. From 2**15 the
            default of 15 lead to a scale of 1. The scale is read about once in
            as many steps; executions of more steps than this run one by one.
        log_dir: A folder for TensorBoard: at each reading `amp/loss_scale` and
            `amp/skipped_steps`, over the steps that were made.
        log_numerics: Whether each epoch writes to `log_dir`, too, what
            `measure_numerics` finds in its first batch: for each tensor the shares
            that overflow and underflow, and a histogram of its powers of two. That
            takes a step in float32, traced anew.

    Raises:
        OptimizerError: If an argument is out of its range; at the start of `fit`,
            if there is no optimizer to watch.
        TrainingStuckError: At a reading, or at the end of an epoch, if so many
            steps in a row were skipped that the optimizer gives up. Only where
            the step itself cannot raise: under `jit_compile=True`.

    Example:

    >>> import numpy as np
    >>> import tf_amp_kit as amp
    >>> model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    >>> model.compile(amp.make_loss_scale_optimizer("sgd", precision="fp16"), "mse")
    >>> x = np.array([[1.0], [np.nan], [2.0], [3.0]])
    >>> history = model.fit(x, x, batch_size=1, verbose=0, callbacks=[amp.AmpMonitor()])
    Epoch 1, end: loss_scale 32768 -> 16384, 1 of 4 steps skipped
    >>> history.history["skipped_steps"], history.history["skip_rate"]
    ([1], [0.25])
    """

    def __init__(
        self,
        *,
        every: int | None = None,
        verbose: int = 1,
        max_skip_rate: float | None = _MAX_SKIP_RATE,
        stop_on_nan: bool = False,
        optimizer: keras.optimizers.Optimizer | None = None,
        prefix: str = "",
        on_nonfinite: str | Callable[[Any], Any] | None = None,
        consecutive_skips: int = DEFAULT_SKIPS,
        log_dir: str | os.PathLike[str] | None = None,
        log_numerics: bool = True,
    ) -> None:
        check_arguments(every, max_skip_rate, optimizer)
        self._watch = SkipWatch(on_nonfinite, consecutive_skips, verbose=verbose)
        super().__init__()
        self._board = None if log_dir is None else Board(log_dir, prefix, numerics=log_numerics)
        self.every = every
        self.verbose = verbose
        self.max_skip_rate = max_skip_rate
        self.stop_on_nan = stop_on_nan
        self.optimizer = optimizer
        self.prefix = prefix
        self._name = f"{prefix}loss_scale"

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Moves to the front of the callbacks, and forgets what an earlier fit was like."""
        self._reader = ScaleReader(self._optimizer_to_watch())
        self._take_places()
        self._guard = StateGuard(self.model, self._reader)
        self._trend = Trend(
            self._name, max_skip_rate=self.max_skip_rate, min_scale=self._reader.min_scale
        )
        self._last: LossScaleState | None = None
        self._has_looked_twice = self._has_missed_a_loss = False
        if self._reader.may_skip and not self._reader.counts_steps:
            self._warn(
                "Keras's LossScaleOptimizer does not count skipped steps: skipped_steps and "
                "skip_rate are logged as NaN, moving statistics are not protected, and stop_on_nan "
                "does nothing. Compile with make_loss_scale_optimizer(optimizer) to have them."
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Raises if the last epoch ended stuck."""
        self._check_that_it_trains()
        self._epoch = epoch
        self._start: LossScaleState | None = None
        self._steps_read = 0

    # Not at the end of a batch: a callback that overrides that hook makes Keras
    # wait for the logs of every step.
    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Protects state before the first batch, and reads where it is time to."""
        if self._start is None:
            # As late as this: other callbacks restore state when training begins.
            self._guard.protect()
            self._start = self._look(batch)
            return
        if not self._has_looked_twice:
            self._look_twice()
        if batch - self._steps_read >= (self.every or _DEFAULT_PERIOD):
            self._look(batch)
            self._check_that_it_trains()
            if self.stop_on_nan:
                self._stop_if_nan(self._loss_so_far(), f"before step {batch + 1}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds to the logs, for all callbacks that come after."""
        logs = {} if logs is None else logs
        state = self._look(None)
        interval = Interval(self._start or state, state)
        if self.stop_on_nan:
            self._stop_if_nan(logs.get("loss"), "at its end")
            self._miss_a_loss(logs)
        # A mean over nothing is 0, which would pass for the best epoch of all.
        if interval.skipped and not interval.applied and self._guard.loss_mean():
            logs["loss"] = math.nan
        for name, value in self._reader.logs_of(interval).items():
            logs[f"{self.prefix}{name}"] = value

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Raises if the run ended stuck, once its last epoch is logged."""
        self._check_that_it_trains()

    @property
    def nonfinite_report(self) -> Any:
        """What `on_nonfinite` found in this fit or the last one; None for nothing."""
        return self._watch.report

    @property
    def nonfinite_batch(self) -> Any:
        """The batch that it looked at, as a tuple, also if it found nothing; or None."""
        return self._watch.batch

    def _take_places(self) -> None:
        """Moves to the front: only the callbacks behind this one see what it logs."""
        watch, board = self._watch, self._board
        last: list[Any] = [watch] if watch.prepare(self.model, self.params, self._reader) else []
        if board is not None:
            board.set_model(self.model)
            board.on_train_begin()
            last.append(board)
        for callbacks in running_methods_of(keras.callbacks.CallbackList):
            if self in callbacks.callbacks:
                others = [one for one in callbacks.callbacks if one not in (self, watch, board)]
                # A new list: the present one is being walked through.
                callbacks.callbacks = [self, *others, *last]

    def _optimizer_to_watch(self) -> Any:
        optimizer = self.model.optimizer if self.optimizer is None else self.optimizer
        if optimizer is None:
            raise OptimizerError(
                "There is no optimizer to watch: the model was compiled without one. Pass "
                "AmpMonitor(optimizer=...), one monitor for each optimizer."
            )
        # `compile` wraps what it is given where the model's policy is float16.
        is_wrapped = getattr(self.model.optimizer, "inner_optimizer", None) is optimizer
        return self.model.optimizer if is_wrapped else optimizer

    def _look(self, batch: int | None) -> LossScaleState:
        """Reads, prints and warns; `batch` is None at the end of an epoch."""
        state = self._reader.read()
        interval = Interval(self._last or state, state)
        self._last = state
        self._steps_read = batch or 0
        has_moved = interval.before.scale != state.scale
        if self.verbose and (has_moved or (self.every and batch != 0)):
            self._print(interval, "end" if batch is None else f"step {batch}")
        if self._board is not None:
            self._board.write_scale(state.scale, interval)
        for message in self._trend.add(interval):
            self._warn(message)
        return state

    def _print(self, interval: Interval, when: str) -> None:
        before, after = f"{interval.before.scale:g}", f"{interval.after.scale:g}"
        moved = after if before == after else f"{before} -> {after}"
        steps = interval.steps
        counts = f", {interval.skipped} of {steps} steps skipped" if steps else ""
        # Keras's progress bar leaves the cursor behind what it has drawn.
        start = "\n" if self.params.get("verbose") in (1, "auto") else ""
        print(f"{start}Epoch {self._epoch + 1}, {when}: {self._name} {moved}{counts}")

    def _warn(self, message: str) -> None:
        warnings.warn(message, LossScaleWarning, stacklevel=stacklevel_of_user())

    def _check_that_it_trains(self) -> None:
        # The counts of an earlier fit are no reason to refuse another try.
        if self._last is not None and self._last.consecutive_skips:
            self._reader.optimizer.check_that_it_trains()

    def _look_twice(self) -> None:
        """Protects what the first batch has built."""
        self._has_looked_twice = True
        if not self._guard.protect() or self._start is None:
            return
        first = Interval(self._start, self._reader.read())
        spoilt = self._guard.spoilt() if first.skipped else []
        if spoilt:
            self._warn(
                f"{first.skipped} of {first.steps} steps were skipped while the model was being "
                f"built, and left NaN or Inf in {len(spoilt)} variables: "
                f"{', '.join(spoilt[:_NUM_EXAMPLES])}. Build the model before fit: call it on a "
                "batch."
            )

    def _loss_so_far(self) -> Any:
        return next((one.result() for one in self.model.metrics if one.name == "loss"), None)

    def _stop_if_nan(self, loss: Any, when: str) -> None:
        if loss is None or self._start is None or self._last is None or self.model.stop_training:
            return
        skipped = Interval(self._start, self._last).skipped
        is_of_applied_steps = not self._reader.may_skip or (
            self._reader.counts_steps and (not skipped or self._guard.loss_mean() is not None)
        )
        if is_of_applied_steps and not math.isfinite(float(loss)):
            self.model.stop_training = True
            self._warn(
                f"Training stops in epoch {self._epoch + 1}, {when}: the mean loss of its applied "
                f"steps is {float(loss)} ({skipped} steps were skipped besides)."
            )

    def _miss_a_loss(self, logs: dict[str, Any]) -> None:
        if "loss" not in logs and not self._has_missed_a_loss:
            self._has_missed_a_loss = True
            self._warn(
                "stop_on_nan has nothing to look at. Expected 'loss' in the logs. "
                f"Received: {sorted(logs)}."
            )
