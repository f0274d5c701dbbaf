"""How long the steps of a model take with a plan, and without."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from tf_amp_kit.comparison.planning.planner import Planner
from tf_amp_kit.comparison.timing import StepTimes, time_interleaved
from tf_amp_kit.tracing.running import StepRunner, after_everything
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import GRADIENTS, OUTPUTS

__all__ = ["measure_step_times"]

_MAX_ROUNDS: Final = 11
_BUDGET_SECONDS: Final = 10.0


def measure_step_times(planner: Planner, pins: Collection[str]) -> StepTimes:
    """Times a step in float32, in half precision and with some pins, in turns.

    Args:
        planner: Knows the model and the batches; the first one is taken.
        pins: The pins.

    Returns:
        The times of forward and backward pass, in training mode and as TensorFlow
        optimizes them, without the optimizer's update, which is the same for all; of a
        model without a loss, of the forward pass.
    """
    layers = {"float32": True, "half": planner.runs.layers_of(())}
    if pins:
        layers["planned"] = planner.runs.layers_of(pins)
    steps = {name: _step(planner, one) for name, one in layers.items()}
    times = time_interleaved(steps, max_rounds=_MAX_ROUNDS, budget_seconds=_BUDGET_SECONDS)
    quartiles = times.quartiles
    return StepTimes(
        what="forward and backward pass" if planner.has_loss else "forward pass",
        num_rounds=times.num_rounds,
        float32=quartiles["float32"],
        half=quartiles["half"],
        planned=quartiles.get("planned", quartiles["half"]),
    )


def _step(planner: Planner, in_float32: Any) -> Callable[[], object]:
    runs = planner.runs
    step = trace_step(
        runs.model,
        runs.specs,
        loss=runs.loss,
        in_float32=in_float32,
        until=GRADIENTS if planner.has_loss else OUTPUTS,
    )
    compute = StepRunner(step).function([after_everything(step)], is_optimized=True)
    batch = planner.batches[0]

    def run() -> None:
        # A result that is read has been computed.
        compute(batch, planner.loss_scale)[0].numpy()

    return run
