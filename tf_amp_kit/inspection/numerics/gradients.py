"""Comparing the gradients of the same batch in float32 and in half precision."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit.data import DEFAULT_BATCH_SIZE, Batch, as_data, batches_of
from tf_amp_kit.inspection.expected import computes_in, expected_half
from tf_amp_kit.inspection.numerics.pairs import GradientComparison, GradientPair, compare_arrays
from tf_amp_kit.inspection.numerics.patterns import parse_half
from tf_amp_kit.inspection.readings import checked_loss_scale
from tf_amp_kit.inspection.remarks import about_train_step
from tf_amp_kit.precision.conversion.convert import convert_model
from tf_amp_kit.progress import working
from tf_amp_kit.tables import some
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_gradients import summed_rows
from tf_amp_kit.tracing.step_graph import build_by_step, trace_step
from tf_amp_kit.tracing.step_phases import Observers
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["compare_gradients"]


def compare_gradients(
    model: keras.Model,
    data: Any,
    y: Any = None,
    *,
    loss: Any = None,
    precision: str | None = None,
    loss_scale: float | None = None,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    verbose: int = 1,
) -> GradientComparison:
    """Compares weight gradients in float32 with those in half precision, on one batch.

    Use it before training in half precision: a cosine near 1 and an error of the
    format's rounding mean that both learn the same. Differences of a few percent are
    usual in bfloat16, and small next to those between batches.

    A model that computes in the wanted format is compared with itself in float32. Of
    another model a copy is made in the mixed policy, as by `convert_model`. Keras's
    own random layers, `Dropout` above all, run in float32 in both, so that they draw
    the same numbers. Weights, statistics and seeds are as before afterwards.

    Args:
        model: A Keras model, compiled unless `loss` is given.
        data: `(x, y[, sample_weight])` as arrays or tensors, a dataset or a Keras
            `PyDataset`, whose first batch is taken, or `x` alone.
        y: The targets, if `data` is `x`.
        loss: What `compile` takes as `loss`; None for the compiled one. A plain
            function is called as a loop of your own would, `loss(y, y_pred)`.
        precision: `"fp16"` or `"bf16"`. None means what `enable_amp` recorded, else
            the global policy's, else what most of the model computes in, else float16.
        loss_scale: What the loss is multiplied by in half precision; gradients are
            divided by it afterwards, in float32. None means the scale that the
            optimizer is at, 2**15 for the float16 copy of a compiled float32 model,
            and 1 where nothing scales; it is halved until the gradients are finite,
            as dynamic loss scaling does.
        batch_size: How many samples of arrays are the batch; None for all of them.
        verbose: 1 prints the comparison, 0 is silent.

    Returns:
        A `GradientComparison`.

    Raises:
        ModelError: If it is not a Keras 3 model, or has no loss.
        InputsError: If the data cannot be read, or do not fit the model.
        PrecisionError: If the precision is unknown or no half format.
        TracingError: If the model's Python code needs values.
        ConversionError: If no copy of the model can be made.
        OptimizerError: If the loss scale is not a positive finite number.

    Example:

    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> model.set_weights([np.array([[1.0], [2.0]]), np.zeros(1)])
    >>> x, y = np.array([[1.0, 1e-8]]), np.array([[0.0]])
    >>> report = compare_gradients(
    ...     model, x, y, loss="mse", precision="fp16", loss_scale=1.0, verbose=0
    ... )
    >>> [(pair.path, pair.num_vanished) for pair in report.pairs]
    [('out/kernel', 1), ('out/bias', 0)]
    """
    check_keras_model(model)
    asked = None if precision is None else parse_half(precision)
    data = as_data(data, y)
    build_by_step(model, data)
    layers = layer_facts(LayerPaths(model))
    half = expected_half(asked, layers)
    half_model = model if computes_in(half, layers) else convert_model(model, half)
    batch = next(batches_of(data, batch_size))
    with working("Comparing gradients", is_shown=bool(verbose)):
        report = _compare(model, half_model, batch, loss, half, loss_scale)
    if verbose:
        print(report)
    return report


def _compare(
    model: Any, half_model: Any, batch: Batch, loss: Any, half: str, loss_scale: float | None
) -> GradientComparison:
    observers = Observers(on_gradients=summed_rows)
    wide_step = trace_step(model, tuple(batch), loss=loss, in_float32=True, observers=observers)
    drawing = DrawingLayers.of(half_model, wide_step)
    observers = Observers(on_outputs=drawing.as_in_half, on_gradients=summed_rows)
    half_step = trace_step(
        half_model, tuple(batch), loss=loss, in_float32=drawing.with_inner, observers=observers
    )
    wide = _Gradients(wide_step).at_scale(batch, 1.0)
    wanted = checked_loss_scale(half_model, loss_scale)
    gradients = _Gradients(half_step)
    scale = wanted if loss_scale is not None else gradients.fitting_scale(batch, wanted)
    narrow = gradients.at_scale(batch, scale)
    return GradientComparison(
        model_name=model.name,
        precision=half,
        loss_scale=scale,
        num_samples=int(tf.nest.flatten(batch.x)[0].shape[0]),
        whole=_whole(wide, narrow, half),
        pairs=tuple(compare_arrays(one, [wide[one]], [narrow[one]], half) for one in wide),
        notes=tuple(_notes(wide_step, drawing.others, half_model, half, (wanted, scale))),
    )


class _Gradients:
    """Computes the gradients of a traced step.

    Args:
        step: The traced step.
    """

    def __init__(self, step: StepTrace) -> None:
        keys = {path: key for path, key in step.gradients.items() if key is not None}
        symbolic = step.reader.symbolic
        self._paths = list(keys)
        self._compute = (
            StepRunner(step).function([symbolic[key] for key in keys.values()]) if keys else None
        )

    def at_scale(self, batch: Batch, scale: float) -> dict[str, Any]:
        """Returns float32 arrays, divided by the loss scale as an optimizer does."""
        values = self._compute(batch, scale) if self._compute else []
        with np.errstate(all="ignore"):
            return {
                path: tf.cast(value, tf.float32).numpy() / np.float32(scale)
                for path, value in zip(self._paths, values, strict=True)
            }

    def fitting_scale(self, batch: Batch, scale: float) -> float:
        """Halves a loss scale until the gradients are finite, as dynamic loss scaling does.

        Returns:
            The scale; the given one if none down to 1 is small enough.
        """
        used = scale
        while used > 1 and not self._are_finite(batch, used):
            used /= 2
        return used if self._are_finite(batch, used) else scale

    def _are_finite(self, batch: Batch, scale: float) -> bool:
        return all(np.isfinite(one).all() for one in self.at_scale(batch, scale).values())


def _whole(wide: dict[str, Any], narrow: dict[str, Any], half: str) -> GradientPair:
    return compare_arrays("", list(wide.values()), [narrow[one] for one in wide], half)


def _notes(
    step: StepTrace,
    drawing: Collection[str],
    half_model: Any,
    half: str,
    scales: tuple[float, float],
) -> list[str]:
    notes = list(about_train_step(half_model))
    wanted, used = scales
    if used != wanted:
        notes.append(
            f"At loss scale {wanted:g} there was NaN or Inf: the scale was halved down to "
            f"{used:g}, as dynamic loss scaling does by skipping steps."
        )
    if not computes_in(half, layer_facts(LayerPaths(half_model))):
        notes.append(f"No layer with weights computes in {half}: little is compared.")
    if drawing:
        notes.append(
            f"{some(drawing)} draw random numbers that differ between the precisions, "
            "and the gradients with them."
        )
    idle = [path for path, key in step.gradients.items() if key is None]
    if idle:
        notes.append(f"Nothing depends on {some(idle)}: no gradient.")
    return notes
