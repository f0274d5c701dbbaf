"""From a traced train step to the numbers of an estimate."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.comparison.memory.loops import Loops
from tf_amp_kit.comparison.memory.record import LayerMemory, MemoryEstimate
from tf_amp_kit.comparison.memory.request import Request
from tf_amp_kit.comparison.memory.simulation import find_peak, held_bytes
from tf_amp_kit.comparison.memory.state import WeightSpec, num_bytes, slot_sizes, weight_specs
from tf_amp_kit.comparison.memory.steps import StepReader, tensor_bytes
from tf_amp_kit.comparison.memory.updates import Update, keys_of
from tf_amp_kit.formats import is_half
from tf_amp_kit.tracing.paths import LayerPaths, variable_paths
from tf_amp_kit.tracing.step_trace import UPDATE_PATH, StepTrace

__all__ = ["KeptBytes", "estimate_for", "kept_bytes"]


@dataclass(frozen=True)
class KeptBytes:
    """What stays from step to step, and the gradients, which need no trace to be counted.

    Attributes:
        weights: All variables of the model as they are stored.
        gradients: One gradient for each trainable weight.
        slots: The optimizer's variables.
    """

    weights: int
    gradients: int
    slots: int

    @classmethod
    def of(cls, weights: Sequence[WeightSpec], slots: Sequence[int]) -> KeptBytes:
        """Adds up the weights, and the sizes of slots."""
        return cls(
            weights=sum(one.size_bytes for one in weights),
            gradients=sum(one.size_bytes for one in weights if one.is_trainable),
            slots=sum(slots),
        )

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.slots


def kept_bytes(weights: Sequence[WeightSpec], optimizer: Any) -> KeptBytes:
    """Counts weights, gradients and slots: the well-known arithmetic, for any size.

    Args:
        weights: The weights.
        optimizer: What `compile` takes.

    Returns:
        A `KeptBytes`.

    Raises:
        OptimizerError: If it is no optimizer.

    Example:

    >>> kept_bytes([WeightSpec("kernel", (10, 5))], "adam").weights
    200
    """
    return KeptBytes.of(weights, slot_sizes(optimizer, weights))


def estimate_for(request: Request, batch_size: int) -> MemoryEstimate:
    """Traces a train step and estimates what it takes."""
    request.check_size(batch_size)
    weights = weight_specs(request.model)
    update = Update(request.model, request.optimizer, weights)
    step = request.trace(batch_size, update)
    batch = [size for one in request.sized_specs(batch_size) for size in _bytes_of_specs(one)]
    inputs = sum(batch)
    keys = _weight_keys(step, request.model)
    reader = StepReader(step, aliases=update.aliases(step, keys), has_update=update.error is None)
    steps = reader.steps()
    if update.error is not None:
        steps += reader.updates(keys, wait_for_all=_waits_for_all(request.optimizer))
    peak = find_peak(steps)
    kept = KeptBytes.of(weights, update.slot_sizes)
    live = kept.weights + kept.slots + inputs + peak.size_bytes
    variables = {keys[one.path]: one.size_bytes for one in weights if one.path in keys}
    variables |= update.slots(step)
    still = kept.weights + kept.slots - sum(variables.values())
    held = held_bytes(steps, [still], variables, threads=_num_threads(), batch=batch)
    by_layer = _activations(step)
    copies = 0 if request.in_float32 else _half_copies(step)
    return MemoryEstimate(
        model_name=request.name,
        precision=request.precision,
        batch_size=batch_size,
        num_replicas=request.num_replicas,
        weights_bytes=kept.weights,
        master_weights_bytes=_masters(request),
        half_weights_bytes=copies,
        gradients_bytes=kept.gradients,
        optimizer_bytes=kept.slots,
        activations_bytes=by_layer.total(),
        inputs_bytes=inputs,
        live_bytes=live,
        peak_bytes=max(live, held),
        peak_phase=reader.phase(peak.position),
        layers=_layers(weights, by_layer),
        notes=tuple(_notes(request, reader, update)),
    )


def _weight_keys(step: StepTrace, model: Any) -> dict[str, int]:
    """Finds the trainable weights that a step reads, as the numbers of their handles."""
    variables = variable_paths(LayerPaths(model))
    return keys_of(step, ((path, one) for one, path in variables if one.trainable))


def _activations(step: StepTrace) -> Counter[str]:
    """Sums up what is kept for the backward pass, by the path of the call that made it."""
    loops = Loops(step)
    kept: Counter[str] = Counter()
    for saved in step.saved_tensors:
        if saved.kind == "activation" and not saved.is_shape_only:
            count = loops.iterations_of(saved.tensor) if saved.is_per_iteration else 1
            size = tensor_bytes(step.trace.tensors[saved.tensor]) or 0
            kept[saved.path] += count * size
    return kept


def _layers(weights: Sequence[WeightSpec], kept: Counter[str]) -> tuple[LayerMemory, ...]:
    own: Counter[str] = Counter()
    for one in weights:
        own[one.path.rpartition("/")[0]] += one.size_bytes
    paths = dict.fromkeys([*own, *kept])
    return tuple(LayerMemory(path, own[path], kept[path]) for path in paths)


def _masters(request: Request) -> int:
    if request.in_float32:
        return 0
    masters = {
        id(variable): num_bytes(variable.shape, str(variable.dtype))
        for _, layer in LayerPaths(request.model)
        if is_half(layer.compute_dtype)
        for variable in _keras.own_variables(layer)
        if variable.dtype == "float32" and variable.trainable
    }
    return sum(masters.values())


def _half_copies(step: StepTrace) -> int:
    """Sums up casts of weights to half precision."""
    trace = step.trace
    total = 0
    for op in trace.live:
        if (
            step.phase(op) == UPDATE_PATH
            or op.type != "Cast"
            or not is_half(trace.tensors[op.outputs[0]].dtype)
        ):
            continue
        source = trace.producers.get(op.inputs[0])
        while source is not None and source.is_passing and source.inputs:
            source = trace.producers.get(source.inputs[0])
        if source is not None and source.type == "ReadVariableOp":
            total += tensor_bytes(trace.tensors[op.outputs[0]]) or 0
    return total


def _waits_for_all(optimizer: Any) -> bool:
    """Tells whether an optimizer looks at all gradients before it updates any weight.

    Clipping by the norm of all does, and loss scaling, which skips the step if one of
    them is not finite.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        return True
    return getattr(optimizer, "global_clipnorm", None) is not None


def _bytes_of_specs(specs: Any) -> list[int]:
    flat = tf.nest.flatten(specs)
    dense = [one for one in flat if isinstance(one, tf.TensorSpec) and one.dtype != tf.string]
    return [num_bytes(one.shape, one.dtype.name) for one in dense]


def _num_threads() -> int:
    if tf.config.get_visible_devices("GPU"):
        return 1  # one stream after the other
    return tf.config.threading.get_inter_op_parallelism_threads() or os.cpu_count() or 1


def _notes(request: Request, reader: StepReader, update: Update) -> Iterator[str]:
    yield from request.notes
    if request.in_float32 is False and is_half(request.precision) and _masters(request):
        yield (
            f"mixed precision saves activations, not weights: the float32 master weights, their "
            f"gradients and the optimizer's slots stay, and {request.precision} copies of the "
            "weights come on top."
        )
    if request.model.jit_compile is True:
        yield (
            "the model is compiled by XLA, which fuses and reorders operations: it may take less "
            "than this, which is for TensorFlow's own executor."
        )
    if update.error is not None:
        yield (
            "the optimizer's code cannot be traced, and what it takes is a guess, two buffers of "
            f"each weight's size: {update.error}"
        )
    if reader.num_unknown:
        yield (f"{reader.num_unknown} tensors have sizes that only a run tells, and count nothing.")
    if reader.num_unknown_loops:
        yield (
            f"how often {reader.num_unknown_loops} loops run is only known in a run: one "
            "iteration is counted of each."
        )
