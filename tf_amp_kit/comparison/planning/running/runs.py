"""Really running a model with some layers in float32 and the rest in half precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tf_amp_kit.comparison.planning.running.results import Results
from tf_amp_kit.comparison.planning.running.watch import Watch
from tf_amp_kit.data import Batch
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.paths import LayerPaths, is_below
from tf_amp_kit.tracing.recorder import OpenCall
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_gradients import summed_rows
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import Observers
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["Run", "Runs"]


class Run:
    """One choice of what runs in float32, traced and ready for batches.

    Args:
        step: The traced step.
        watch: What looks at its units.
        seen: The tensor that the watch made.
        count: Counts passes.
    """

    def __init__(self, step: StepTrace, watch: Watch, seen: Any, count: Callable[[], None]) -> None:
        self.step = step
        self._watch, self._count = watch, count
        symbolic = step.reader.symbolic
        outputs = {
            name: symbolic[key]
            for name, key in step.model_outputs.items()
            if symbolic[key].dtype.is_floating
        }
        gradients = {path: symbolic[key] for path, key in step.gradients.items() if key is not None}
        loss = [] if step.loss is None else [symbolic[step.loss]]
        #: The smallest loss scale that a batch took to fit.
        self.fitting_scale = math.inf
        self._names = list(outputs), list(gradients)
        self._has_loss = bool(loss)
        self._compute = StepRunner(step).function(
            [*outputs.values(), *gradients.values(), *loss, seen]
        )

    @property
    def is_watching(self) -> bool:
        """Whether it looks at units one by one."""
        return self._watch.is_looking

    def on(self, batch: Batch, scale: float = 1.0) -> Results:
        """Runs a batch, and takes the loss scale out of what it gives."""
        self._count()
        values = [tf.cast(one, tf.float32).numpy() for one in self._compute(batch, scale)]
        names, paths = self._names
        outputs = dict(zip(names, values, strict=False))
        factor = np.float32(scale)
        with np.errstate(all="ignore"):
            gradients = {
                path: value / factor
                for path, value in zip(paths, values[len(names) :], strict=False)
            }
            loss = float(values[-2] / factor) if self._has_loss else None
        return Results(outputs, loss, gradients, tuple(self._watch.extremes(values[-1])))

    def at_fitting_scale(self, batch: Batch, scale: float) -> Results:
        """Runs a batch at a loss scale, or at the largest below it that leaves all finite."""
        results = self.on(batch, scale)
        while scale > 1 and results.gradients and not results.is_finite:
            if any(np.isnan(one).any() for one in results.outputs.values()):
                break  # no scale of the loss changes the forward pass
            scale /= 2
            results = self.on(batch, scale)
        self.fitting_scale = min(self.fitting_scale, scale)
        return results


@dataclass
class Runs:
    """Traces choices of what runs in float32.

    Dropout, the statistics of normalizations and random layers are held still: the model
    is called with `training=False`, and Keras's random layers run in float32 everywhere.

    Args:
        model: The model in half precision.
        specs: What its data look like.
        loss: What `compile` takes; None for the compiled loss.
        drawing: The random layers; `hold_still` finds them.
    """

    model: Any
    specs: Any
    loss: Any
    drawing: DrawingLayers = field(default_factory=lambda: DrawingLayers((), ()))
    #: How many batches went through the model.
    num_passes: int = 0

    def __post_init__(self) -> None:
        self.paths = LayerPaths(self.model)

    def hold_still(self, run: Run) -> None:
        """Finds the random layers in a run, for those that come after it."""
        self.drawing = DrawingLayers.of(self.model, run.step)

    def float32(self, until: str, units: Collection[str] | None) -> Run:
        """Traces the model with every layer in float32."""
        return self._run(True, until, units)

    def with_pins(self, pinned: Collection[str], until: str, units: Collection[str] | None) -> Run:
        """Traces the model with some layers, and what is in them, in float32."""
        return self._run(self.layers_of(pinned), until, units)

    def layers_of(self, pinned: Collection[str]) -> list[Any]:
        """Returns the layers that pins mean, sublayers included."""
        return [layer for path, layer in self.paths if any(is_below(path, one) for one in pinned)]

    def _run(self, in_float32: Any, until: str, units: Collection[str] | None) -> Run:
        watch = Watch(units, magnitudes=in_float32 is True)
        seen: list[Any] = []

        def on_outputs(call: OpenCall) -> Any:
            if in_float32 is not True:
                call.outputs = self.drawing.as_in_half(call, pinned=in_float32)
            return watch.on_outputs(call)

        observers = Observers(
            on_outputs=on_outputs,
            on_gradients=summed_rows,
            on_end=lambda _: seen.append(watch.tensor()),
        )
        held = True if in_float32 is True else [*in_float32, *self.drawing.with_inner]
        step = trace_step(
            self.model,
            self.specs,
            loss=self.loss,
            in_float32=held,
            observers=observers,
            until=until,
            training=False,
        )
        return Run(step, watch, seen[0], self.count_pass)

    def count_pass(self) -> None:
        self.num_passes += 1
