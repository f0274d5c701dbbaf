"""What TensorBoard shows of a run in half precision."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.callers import stacklevel_of_user
from tf_amp_kit.errors import AmpError, LossScaleWarning, OptimizerError
from tf_amp_kit.inspection.feeding import feed_by_hand, of_all_replicas
from tf_amp_kit.inspection.numerics.measure import measure_numerics
from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics
from tf_amp_kit.inspection.readings import Interval
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Board"]

_SCALARS: Final = "scalars"
_HISTOGRAMS: Final = "histograms"


class Board(keras.callbacks.Callback):
    """Writes loss scales, skips and numerics to event files.

    It belongs at the end of the callbacks, as it feeds the first batch of an epoch by hand.

    Args:
        log_dir: The folder of the event files.
        prefix: Stands before the tags.
        numerics: Whether the first batch of each epoch is measured.

    Raises:
        OptimizerError: If `log_dir` is no path.
    """

    def __init__(self, log_dir: Any, prefix: str, *, numerics: bool) -> None:
        if not isinstance(log_dir, str | os.PathLike) or os.path.isfile(log_dir):
            raise OptimizerError(f"Expected a folder, or None. Received: log_dir={log_dir!r}.")
        super().__init__()
        self._log_dir = os.fspath(log_dir)
        self._prefix = prefix
        self._numerics = numerics
        self._writer: Any = None
        self._batch: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Starts a new count of steps, in the same folder."""
        self._step = 0

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts steps, and keeps the first batch of an epoch, to measure it at the end."""
        self._step += self.model.steps_per_execution
        if batch == 0 and self._numerics:
            self._batch = None
            feed_by_hand(self.model, batch, self._kept)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Measures the first batch by the weights of the end."""
        if self._batch is None:
            return
        batch, self._batch = self._batch, None
        try:
            report = measure_numerics(self.model, batch, batch_size=None, verbose=0)
        except (AmpError, *USER_CODE_ERRORS) as error:  # training goes on
            self._numerics = False
            warnings.warn(
                f"The numerics for TensorBoard could not be measured, and are left out: {error}",
                LossScaleWarning,
                stacklevel=stacklevel_of_user(),
            )
            return
        self._write_numerics(report)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def write_scale(self, scale: float, interval: Interval) -> None:
        """Writes the loss scale, and the steps skipped since the last time.

        Args:
            scale: The scale as it is now.
            interval: What happened since.
        """
        with self._opened():
            self._scalar("loss_scale", scale)
            self._scalar("skipped_steps", interval.skipped)

    def _kept(self, function: Callable[[Any], Any], alone: Any, batch: Any, step: int) -> Any:
        if self._batch is None:
            self._batch = of_all_replicas(batch, self.model.distribute_strategy)
        return function(alone)

    def _write_numerics(self, report: NumericsReport) -> None:
        with self._opened():
            for one in report.tensors:
                self._scalar(f"overflow/{_tag(one)}", one.overflow_fraction)
                self._scalar(f"underflow/{_tag(one)}", one.underflow_fraction)
                self._histogram(f"exponents/{_tag(one)}", one.statistics.exponent_counts)

    def _opened(self) -> Any:
        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._log_dir)
        return self._writer.as_default(step=self._step)

    def _scalar(self, name: str, value: float) -> None:
        self._write(name, np.float32(value), _SCALARS)

    def _histogram(self, name: str, counts: dict[int, int]) -> None:
        """Writes buckets from 2^e to 2^(e + 1): left edge, right edge, count."""
        if counts:
            lowest, highest = min(counts), max(counts)
            exponents = range(lowest, highest + 1)
            buckets = [(e, e + 1, counts.get(e, 0)) for e in exponents]
            self._write(name, np.array(buckets, np.float64), _HISTOGRAMS)

    def _write(self, name: str, value: Any, plugin: str) -> None:
        # `tf.summary.scalar` and `histogram` need TensorBoard itself.
        metadata = tf.compat.v1.SummaryMetadata(
            plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin)
        )
        tf.summary.write(f"{self._prefix}amp/{name}", value, metadata=metadata)


def _tag(one: TensorNumerics) -> str:
    return f"{one.kind}/{one.name.replace('@', '')}"
