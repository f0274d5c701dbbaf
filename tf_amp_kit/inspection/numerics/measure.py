"""Measuring what half precision would do to a model's numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.data import (
    DEFAULT_BATCH_SIZE,
    Batch,
    as_data,
    batch_specs,
    batches_of,
    check_num_batches,
    widened_specs,
)
from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.inspection.expected import expected_half, expected_precision
from tf_amp_kit.inspection.numerics.notes import notes_on
from tf_amp_kit.inspection.numerics.patterns import parse_half
from tf_amp_kit.inspection.numerics.probes import (
    GRADIENT,
    INPUT,
    OUTPUT,
    WEIGHT,
    WEIGHT_GRADIENT,
    Probe,
    Probes,
)
from tf_amp_kit.inspection.numerics.report import NumericsReport, TensorNumerics
from tf_amp_kit.inspection.numerics.scales import advise_scale
from tf_amp_kit.inspection.readings import checked_loss_scale
from tf_amp_kit.progress import working
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths, variable_paths
from tf_amp_kit.tracing.running import StepRunner, after_everything
from tf_amp_kit.tracing.step_graph import build_by_step, trace_step
from tf_amp_kit.tracing.step_phases import Observers

__all__ = ["Measurement", "measure_numerics"]

_ORDER = {kind: i for i, kind in enumerate((INPUT, OUTPUT, GRADIENT, WEIGHT, WEIGHT_GRADIENT))}


def measure_numerics(
    model: keras.Model,
    data: Any,
    y: Any = None,
    *,
    loss: Any = None,
    precision: str | None = None,
    loss_scale: float | None = None,
    batches: int = 1,
    batch_size: int | None = DEFAULT_BATCH_SIZE,
    verbose: int = 1,
) -> NumericsReport:
    """Measures which numbers of a model would overflow or vanish in half precision.

    Use it before a model is switched to half precision, and to choose an initial loss
    scale. Each batch runs once through forward and backward pass in float32, whatever
    the model's policies are. What is counted in that run: the inputs, the outputs of
    every layer, the gradients of these outputs, the weights and their gradients; all
    elements, exactly, batches added up. Weights, statistics and seeds are as before
    afterwards. NaN and Inf that are there in float32 are counted and left out of all
    else.

    The shares are of the finite non-zero elements, by rounding to nearest, ties to
    even: *overflow* becomes infinite, *underflow* becomes zero, *subnormal* becomes a
    value below the smallest normal one and keeps fewer digits. Formats are those of
    IEEE 754 and of bfloat16 as ml_dtypes has it.

    Args:
        model: A Keras model, compiled unless `loss` is given.
        data: `(x, y[, sample_weight])` as arrays or tensors, a `tf.data.Dataset` or a
            Keras `PyDataset` of batches, or `x` alone.
        y: The targets, if `data` is `x`.
        loss: What `compile` takes as `loss`; None for the compiled one. A plain
            function is called as a loop of your own would, `loss(y, y_pred)`.
        precision: The format to judge by, `"fp16"` or `"bf16"`. None means what
            `enable_amp` recorded, else the global policy's, else what most of the
            model computes in, else float16.
        loss_scale: What gradients are multiplied by. None means the scale that the
            optimizer is at, and 1 for an optimizer that does not scale.
        batches: How many batches to measure.
        batch_size: How many samples of arrays are a batch; None for all of them.
        verbose: 1 prints the report, 0 is silent.

    Returns:
        A `NumericsReport`, with one `TensorNumerics` per tensor.

    Raises:
        ModelError: If it is not a Keras 3 model, or has no loss.
        InputsError: If the data cannot be read, or do not fit the model.
        PrecisionError: If the precision is unknown or no half format.
        TracingError: If the model's Python code needs values.
        OptimizerError: If the loss scale is not a positive finite number.

    Example:

    >>> import numpy as np
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="out")])
    >>> model.set_weights([np.array([[70000.0], [1e-9]]), np.zeros(1)])
    >>> x, y = np.array([[1.0, 0.0]]), np.array([[0.0]])
    >>> report = measure_numerics(model, x, y, loss="mse", precision="fp16", verbose=0)
    >>> {one.path: one.overflow_fraction for one in report.of_kind("weight")}
    {'out/kernel': 0.5, 'out/bias': 0.0}
    >>> report.of_kind("weight")[0].underflow_fraction
    0.5
    """
    check_keras_model(model)
    asked = None if precision is None else parse_half(precision)
    check_num_batches(batches)
    data = as_data(data, y)
    scale = checked_loss_scale(model, loss_scale)
    with working("Measuring the numbers of a train step", is_shown=bool(verbose)):
        report = Measurement(model, data, loss, asked, scale).run(data, batch_size, batches)
    if verbose:
        print(report)
    return report


class Measurement:
    """One model, traced in float32 with a probe on every tensor."""

    def __init__(
        self, model: Any, data: Any, loss: Any, asked: str | None, loss_scale: float
    ) -> None:
        build_by_step(model, data)
        paths = LayerPaths(model)
        self._model = model
        self._loss_scale = loss_scale
        layers = layer_facts(paths)
        self._precision = expected_half(asked, layers)
        self._is_guess = asked is None and not is_half(expected_precision(None, layers))
        self._variables = variable_paths(paths)
        self._probes = Probes(self._precision)
        self._dtypes = _weight_dtypes(paths)
        names = {id(variable): path for variable, path in self._variables}
        self._observers = Observers(
            on_outputs=self._probes.on_outputs,
            on_gradients=lambda pairs: self._probes.on_gradients(pairs, names, self._dtypes),
        )
        self._loss = loss
        self._trace(batch_specs(data))

    def _trace(self, specs: Any) -> None:
        step = trace_step(
            self._model, specs, loss=self._loss, in_float32=True, observers=self._observers
        )
        self._specs = specs
        self._step = step
        self._input_names = [name for name in step.input_names if name.startswith("@input")]
        self._runner = StepRunner(step)
        self._compute = self._runner.function([after_everything(step)])

    def run(self, data: Any, batch_size: int | None, count: int) -> NumericsReport:
        """Measures some batches."""
        num_batches = num_samples = 0
        with self._runner.series():
            for batch in itertools.islice(batches_of(data, batch_size), count):
                self.add(batch)
                self._runner.next_batch()
                num_batches += 1
                num_samples += _length(batch)
        self._count_weights()
        tensors = tuple(self._tensors())
        report = NumericsReport(
            model_name=self._model.name,
            precision=self._precision,
            loss_scale=self._loss_scale,
            num_batches=num_batches,
            num_samples=num_samples,
            tensors=tensors,
            scale=advise_scale([], self._precision, self._loss_scale),
            notes=tuple(
                notes_on(
                    self._model,
                    self._step,
                    tensors,
                    (self._precision, self._is_guess),
                    self._loss_scale,
                )
            ),
        )
        kinds = (GRADIENT, WEIGHT_GRADIENT)
        known = [one.statistics for one in report.judged() if one.kind in kinds]
        scale = advise_scale(known, self._precision, self._loss_scale)
        return dataclasses.replace(report, scale=scale)

    def add(self, batch: Batch) -> None:
        """Runs one batch, and counts everything in it."""
        wider = widened_specs(self._specs, batch)
        if wider != self._specs:
            self._trace(wider)
        self._count_inputs(batch)
        self._compute(batch, self._loss_scale)

    def _count_inputs(self, batch: Batch) -> None:
        leaves = tf.nest.flatten(batch.x, expand_composites=True)
        for name, leaf in zip(self._input_names, leaves, strict=True):
            if leaf.dtype.is_floating:
                self._probes.add(self._probes.place(INPUT, name, 0, "", ""), leaf.numpy())

    def _count_weights(self) -> None:
        weights = {id(weight) for weight in self._model.weights}
        for variable, path in self._variables:
            if id(variable) in weights and is_float(variable.dtype):
                values = tf.convert_to_tensor(variable.value).numpy()
                dtype = self._dtypes[id(variable)]
                self._probes.add(self._probes.place(WEIGHT, path, 0, "", dtype), values)

    def _tensors(self) -> Iterator[TensorNumerics]:
        probes = sorted(self._probes.all, key=lambda probe: _ORDER[probe.kind])
        for probe in probes:
            # Where no weight that trains comes before, outputs have no gradient.
            if probe.kind != GRADIENT or probe.is_begun:
                yield self._tensor(probe)

    def _tensor(self, probe: Probe) -> TensorNumerics:
        statistics = probe.statistics(self._precision)
        return TensorNumerics(
            kind=probe.kind,
            path=probe.path,
            position=probe.position,
            layer_class=probe.layer_class,
            dtype=probe.dtype,
            statistics=statistics,
            judgement=statistics.judge(self._precision),
        )


def _weight_dtypes(paths: LayerPaths) -> dict[int, str]:
    """Tells by variable what the innermost layer that has it uses it in."""
    return {
        id(one): layer.dtype_policy.compute_dtype if _keras.is_autocast(one) else one.dtype
        for _, layer in paths
        for one in layer.variables
    }


def _length(batch: Batch) -> int:
    leaves = tf.nest.flatten(batch.x)
    return int(leaves[0].shape[0]) if leaves else 0
