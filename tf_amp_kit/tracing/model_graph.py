"""Tracing a model without computing anything: the one way to look at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np

from tf_amp_kit import _keras
from tf_amp_kit.data import tiny_batch
from tf_amp_kit.tracing import conflicts
from tf_amp_kit.tracing.constants import Probes, changed_constants
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.inputs import CallSpecs, accepts_training, candidate_specs, knows_inputs
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.numbering import Reader, flat_tensors, keyed_arguments, keyed_numbers
from tf_amp_kit.tracing.observe import observing
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.reading import (
    EagerReader,
    GraphReader,
    added_losses,
    layer_calls,
)
from tf_amp_kit.tracing.recorder import Recorder
from tf_amp_kit.tracing.records import Conflict, LayerFacts
from tf_amp_kit.tracing.state import undisturbed, variables_restored
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["conflict_record", "conflict_records", "trace_modes"]


@dataclass
class _Pass:
    """One pass through the model, as it was observed."""

    recorder: Recorder
    reader: Reader
    arguments: Any
    outputs: Any
    dtypes_are_known: bool
    why_eager: str = ""


def trace_modes(
    model: Any,
    *,
    inputs: Any = None,
    fallback: Any = None,
    modes: Sequence[bool] = (False, True),
) -> tuple[ModelTrace, ...]:
    """Traces a model once per `training` mode, and leaves it as it was.

    The forward pass is traced into a graph that never runs. A model that cannot
    be traced, because its Python code needs values, runs eagerly on two samples.
    A call that half precision makes fail becomes a `Conflict`, and is made again
    in float32, so that the rest of the model is still seen.

    Args:
        model: A Keras model. An unbuilt one needs `inputs`, and gets built.
        inputs: Example inputs in any form that `data.input_specs` takes.
        fallback: The same, for a model that does not know its inputs by itself.
        modes: Values of `training`. A model without that argument is traced once.

    Returns:
        One `ModelTrace` per mode.

    Raises:
        ModelError: If it is not a Keras 3 model, or not built and `inputs=None`.
        InputsError: If the inputs are unknown or do not fit.
    """
    check_keras_model(model)
    if inputs is None and not knows_inputs(model):
        inputs = fallback
    candidates = list(candidate_specs(model, inputs))
    paths = LayerPaths(model)
    facts = layer_facts(paths)
    wanted = list(modes) if accepts_training(model) else [None]
    traces = []
    probes: Probes = {}
    for training in wanted:
        known = paths.copy()
        # NumPy warns where a constant overflows: that is a finding, with its line.
        with np.errstate(over="ignore"):
            one = _observe(model, known, candidates, inputs, training)
            with undisturbed(paths):
                trace = _freeze(one, known, facts, training)
                traces.append(changed_constants(trace, one.recorder, probes))
    return tuple(traces)


def _observe(
    model: Any,
    paths: LayerPaths,
    candidates: Sequence[CallSpecs],
    inputs: Any,
    training: bool | None,
) -> _Pass:
    reasons = []
    for specs in candidates:
        try:
            with undisturbed(paths), _keras.unbuilt_again(layer for _, layer in paths):
                return _trace(model, paths, specs, training)
        except USER_CODE_ERRORS as error:  # its Python needs a value that only a run has
            reasons.append(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
    # The last word on an error is the eager run's: it has the user's traceback.
    with undisturbed(paths):
        one = _run(model, paths, candidates[0], inputs, training)
    return replace(one, why_eager=reasons[0])


def _trace(model: Any, paths: LayerPaths, specs: CallSpecs, training: bool | None) -> _Pass:
    recorder = Recorder(paths)

    def call(*args: Any, **kwargs: Any) -> None:
        # The recorder has the outputs: a graph would refuse some, a dataclass say.
        with observing(recorder):
            model(*args, **kwargs, **_training(training))

    graph = _keras.trace_to_graph(call, specs.args, specs.kwargs)
    outermost = recorder.calls[0]
    return _Pass(
        recorder,
        GraphReader(graph, recorder.calls),
        outermost.arguments,
        outermost.outputs,
        specs.dtypes_are_known,
    )


def _run(
    model: Any, paths: LayerPaths, specs: CallSpecs, inputs: Any, training: bool | None
) -> _Pass:
    recorder = Recorder(paths)
    reader = EagerReader(recorder)
    batch = CallSpecs(
        tuple(tiny_batch(inputs, spec) for spec in specs.args),
        {key: tiny_batch(inputs, spec) for key, spec in specs.kwargs.items()},
    )
    for value in flat_tensors((batch.args, batch.kwargs)):
        reader.add_input(value)
    with (
        variables_restored(paths),
        observing(recorder),
        _keras.eager_operations_seen(reader.callback),
    ):
        outputs = model(*batch.args, **batch.kwargs, **_training(training))
    arguments = (batch.args, batch.kwargs)
    return _Pass(recorder, reader, arguments, outputs, specs.dtypes_are_known)


def _training(training: bool | None) -> dict[str, bool]:
    return {} if training is None else {"training": training}


def _freeze(
    one: _Pass, paths: LayerPaths, facts: tuple[LayerFacts, ...], training: bool | None
) -> ModelTrace:
    return ModelTrace(
        training=training,
        is_eager=isinstance(one.reader, EagerReader),
        why_eager=one.why_eager,
        dtypes_are_known=one.dtypes_are_known,
        layers=facts,
        calls=layer_calls(one.recorder, one.reader),
        operations=tuple(one.reader.operations),
        tensors=tuple(one.reader.tensors),
        inputs=keyed_numbers(keyed_arguments(one.arguments), one.reader),
        outputs=keyed_numbers(one.outputs, one.reader),
        conflicts=conflict_records(one.recorder, paths),
        losses=added_losses(one.recorder, one.reader),
    )


def conflict_records(recorder: Recorder, paths: LayerPaths | None) -> tuple[Conflict, ...]:
    """Lists the conflicts that a recorder saw, each once."""
    found: dict[Any, Conflict] = {}
    for layer, clash in recorder.conflicts:
        one = conflict_record(layer, clash, paths)
        # Building and calling raise the same, in graphs whose tensors have other names.
        found[(one.path, frozenset(one.dtypes), one.operation, one.source)] = one
    return tuple(found.values())


def conflict_record(layer: Any, clash: conflicts.Clash, paths: LayerPaths | None) -> Conflict:
    """Joins what an error says with the layer that it hit."""
    path = paths.of(layer) if paths else None
    return Conflict(
        path=layer.name if path is None else path,
        layer_class=type(layer).__name__,
        dtypes=clash.dtypes,
        origins=clash.origins,
        message=clash.message,
        source=clash.source,
        is_missing_kernel=clash.is_missing_kernel,
        operation=clash.operation,
        is_model=isinstance(layer, keras.Model),
    )
