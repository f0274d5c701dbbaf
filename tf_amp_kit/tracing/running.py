"""Running a traced train step on batches, and leaving the model as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.data import Batch
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["StepRunner", "after_everything", "run_plainly", "values_restored"]


class StepRunner:
    """Runs a traced train step, and gives variables their values back after each run.

    Args:
        step: The traced step.
    """

    def __init__(self, step: StepTrace) -> None:
        self.step = step
        self.graph = step.reader.graph
        self._moved: list[tuple[Any, Any]] = []
        #: How many variables the last run left with NaN or Inf.
        self.num_spoilt = 0

    @contextlib.contextmanager
    def series(self) -> Iterator[None]:
        """Lets seeds go on from batch to batch in a `with` block, and puts them back."""
        with values_restored(self.step.variables):
            yield

    def next_batch(self) -> None:
        """Draws other random numbers from now on: those that come after the last run's."""
        for variable, value in self._moved:
            variable.assign(value)

    def function(
        self, outputs: Sequence[Any], *, is_optimized: bool = False
    ) -> Callable[[Batch, float], list[Any]]:
        """Makes a function that computes some tensors of the step's graph.

        Args:
            outputs: Tensors of the graph.
            is_optimized: Whether TensorFlow may optimize the graph, as it does in `fit`.

        Returns:
            A function of a batch and a loss scale.
        """
        compute = _keras.graph_function(self.graph, outputs)

        def run(batch: Batch, loss_scale: float) -> list[Any]:
            with values_restored(self.step.variables):
                inputs = self._flat_inputs(batch, loss_scale)
                values = compute(*inputs) if is_optimized else run_plainly(compute, inputs)
                # Seeds are integers; statistics are left where they were.
                seeds = [one for one in self.step.variables if not one.dtype.is_floating]
                self._moved = [(one, one.read()) for one in seeds]
                self.num_spoilt = sum(not one.is_finite() for one in self.step.variables)
                return values

        return run

    def _flat_inputs(self, batch: Batch, loss_scale: float) -> list[Any]:
        x, y, sample_weight = batch
        given = {"y": y, "sample_weight": sample_weight}
        kwargs = {name: value for name, value in given.items() if value is not None}
        scale = tf.constant(loss_scale, tf.float32)
        return tf.nest.flatten(((x, scale), kwargs), expand_composites=True)  # type: ignore[no-any-return]


def after_everything(step: StepTrace) -> Any:
    """Makes a tensor that is there when all results of a step are: without keeping these."""
    symbolic = step.reader.symbolic
    results = [symbolic[key] for key in step.trace.outputs.values()]
    with step.reader.graph.as_default(), tf.control_dependencies(results):
        return tf.identity(results[0])


def run_plainly(compute: Callable[..., list[Any]], values: Sequence[Any]) -> list[Any]:
    """Calls a function without TensorFlow's graph optimizer.

    That one takes longer than a run does, and may reorder what is looked at.
    """
    with _keras.graph_optimizer_off(), _keras.op_callbacks_off():
        return compute(*values)


@contextlib.contextmanager
def values_restored(variables: Sequence[_keras.WrittenVariable]) -> Iterator[None]:
    """Gives variables their values back after a `with` block.

    Args:
        variables: What may be written inside.
    """
    # Reading shares the buffer: only what is written costs memory.
    before = [(variable, variable.read()) for variable in variables]
    try:
        yield
    finally:
        for variable, value in before:
            variable.assign(value)
