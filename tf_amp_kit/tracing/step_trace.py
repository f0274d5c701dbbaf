"""The record of a whole train step: forward pass, loss, gradients and metrics.

What the forward pass makes and the gradients read has to be kept in between:
that is what training needs memory for, and what half precision halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import join
from tf_amp_kit.tracing.reading import GraphReader
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.saved import SavedTensor, saved_tensors

__all__ = ["GRADIENTS_PATH", "LOSS_PATH", "METRICS_PATH", "UPDATE_PATH", "StepTrace"]

LOSS_PATH: Final = "@loss"
GRADIENTS_PATH: Final = "@gradients"
METRICS_PATH: Final = "@metrics"
UPDATE_PATH: Final = "@update"


@dataclass(frozen=True)
class StepTrace:
    """The graph of one train step, without the optimizer's update unless one was added.

    Attributes:
        trace: The records of the step. The loss, the gradients and the metrics
            are calls of their own, `@loss`, `@gradients` and `@metrics`, and
            outputs of these names.
        loss: The tensor number of the scaled loss; None if the step ends before it.
        gradients: The tensor number of each gradient by the variable's path; of
            a sparse gradient its values; None where nothing depends on it.
        specs: The specs of inputs, targets and sample weights.
        reader: Knows the tensors behind the numbers.
        variables: What a run of the graph may write.
    """

    trace: ModelTrace
    loss: int | None
    gradients: dict[str, int | None]
    specs: tuple[Any, Any, Any] = field(repr=False)
    reader: GraphReader = field(repr=False, compare=False)
    variables: tuple[_keras.WrittenVariable, ...] = field(repr=False, compare=False)

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """Names of the graph's inputs in order, captured ones aside."""
        x, y, sample_weight = self.specs
        return (
            *_keyed("@input", x),
            "@loss_scale",
            *_keyed("@sample_weight", sample_weight),
            *_keyed("@target", y),
        )

    @property
    def model_outputs(self) -> dict[str, int]:
        """The tensor numbers of what the model returned, by key."""
        own = (LOSS_PATH, GRADIENTS_PATH, METRICS_PATH)
        outputs = self.trace.outputs.items()
        return {name: key for name, key in outputs if name.partition("/")[0] not in own}

    def is_gradient(self, op: Operation) -> bool:
        """Tells whether an operation belongs to the backward pass."""
        return self.phase(op) == GRADIENTS_PATH

    def phase(self, op: Operation) -> str:
        """Returns `"@loss"`, `"@gradients"`, `"@metrics"`, `"@update"`; "" for the model."""
        call = self.trace.call_of(op)
        outermost = "" if call is None else [*self.trace.enclosing(call)][-1].path
        own = (LOSS_PATH, GRADIENTS_PATH, METRICS_PATH, UPDATE_PATH)
        return outermost if outermost in own else ""

    def originals(self, op: Operation) -> Iterator[Operation]:
        """Yields what an operation is part of the gradient of.

        A gradient that runs a part of the forward pass again has operations in
        between, which come first; the last one is of the forward pass. The sum of
        several gradients belongs to what its next reader is the gradient of, and so
        does all else that TensorFlow puts in between.
        """
        original = self._original(op)
        while original is not None:
            yield original
            original = self._original(original) if self.is_gradient(original) else None

    def _original(self, op: Operation) -> Operation | None:
        pending, seen = [op], {op.index}
        while pending:
            current = pending.pop(0)
            original = _keras.original_operation(current.raw.operation)
            if original is not None and original.outputs:
                key = self.reader.number(original.outputs[0])
                return None if key is None else self.trace.producers.get(key)
            for reader in (r for key in current.outputs for r in self.trace.consumers.get(key, ())):
                if reader.index not in seen and self.is_gradient(reader):
                    seen.add(reader.index)
                    pending.append(reader)
        return None

    @cached_property
    def saved_tensors(self) -> tuple[SavedTensor, ...]:
        """What the backward pass reads of the forward pass, in order of making.

        Each buffer counts once: reshaped or renamed, it is the same memory.
        """
        return saved_tensors(self.trace, self.is_gradient)


def _keyed(prefix: str, specs: Any) -> list[str]:
    """Names the components of a structure, in the order that TensorFlow flattens it in."""
    if isinstance(specs, dict):
        return [
            name for key in sorted(specs) for name in _keyed(join(prefix, str(key)), specs[key])
        ]
    if isinstance(specs, list | tuple):
        parts = enumerate(specs)
        return [name for key, spec in parts for name in _keyed(join(prefix, str(key)), spec)]
    count = 0 if specs is None else len(tf.nest.flatten(specs, expand_composites=True))
    return [prefix if "/" in prefix else join(prefix, "0")] * count
