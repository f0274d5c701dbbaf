"""From an operation that was found to the record that a user reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.inspection.nonfinite.constants import Changed, Constants
from tf_amp_kit.inspection.nonfinite.health import Health
from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.inspection.nonfinite.reasons import explain
from tf_amp_kit.inspection.nonfinite.report import NonFiniteOrigin
from tf_amp_kit.inspection.nonfinite.search import DATA_TYPES, Found
from tf_amp_kit.tracing.bodies import WRITING_TYPES
from tf_amp_kit.tracing.records import Operation
from tf_amp_kit.tracing.source import Source
from tf_amp_kit.tracing.step_trace import METRICS_PATH, StepTrace

__all__ = ["Describer", "place_of"]

FORWARD: Final = "forward"
BACKWARD: Final = "backward"

_WRITTEN: Final = (
    "It was finite before the step: a branch, a loop or a function inside the step wrote it."
)

Place = tuple[str, str, Source | None]


class Describer:
    """Describes what was found in a train step.

    Args:
        step: The traced step.
        variable_paths: Each `keras.Variable` with its path.
        constants: Gives what half precision did to the constants, when asked.
    """

    def __init__(
        self,
        step: StepTrace,
        variable_paths: Sequence[tuple[Any, str]],
        constants: Callable[[], Constants | None],
    ) -> None:
        self._step = step
        self._variable_paths = variable_paths
        self._constants = constants

    def origin(self, found: Found) -> NonFiniteOrigin:
        """Makes the record of an origin; computes its operands once more."""
        op = found.operation
        *inputs, result = found.level.values([*op.inputs, found.result])
        changed = self._changed(op)
        operands = self._operands(op, inputs)
        outcome = _operand(result, changed[-1])
        if op.type in DATA_TYPES:
            return self._of_data(op, outcome)
        path, layer_class, source = place_of(self._step, found)
        return NonFiniteOrigin(
            path=path,
            layer_class=layer_class,
            operation=op.type,
            direction=BACKWARD if self._step.is_gradient(op) else FORWARD,
            reason=_reason(op, operands, outcome),
            source=source,
            operands=operands,
            result=outcome,
            iterations=found.iterations,
        )

    def spread(self, found: Found, bad: Mapping[int, Health]) -> tuple[str, ...]:
        """Lists the layers whose operations gave something bad after the origin."""
        paths = []
        for op in self._step.trace.operations:
            is_later = op.index > found.operation.index
            call = self._step.trace.call_of(op)
            is_bad = any(key in bad for key in op.outputs)
            if is_bad and is_later and call is not None and not self._step.phase(op):
                paths.append(call.path)
        return tuple(path for path in dict.fromkeys(paths) if path)

    def ends(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Names what the step leaves behind, by tensor numbers."""
        names = {key: name for name, key in self._step.trace.outputs.items()}
        names = {
            key: name if name.startswith("@") else f"@output/{name}" for key, name in names.items()
        }
        # What a metric keeps is told by its result.
        writers = {
            op.inputs[-1]: self._variable(op.inputs[0])
            for op in self._step.trace.operations
            if op.type in WRITING_TYPES and self._step.phase(op) != METRICS_PATH
        }
        return tuple(names.get(key) or writers.get(key, "") for key in numbers)

    def _operands(self, op: Operation, values: Sequence[Any]) -> tuple[Operand, ...]:
        # Text, resources and lists have no range.
        return tuple(
            _operand(value, changed)
            for value, changed in zip(values, self._changed(op), strict=False)
            if value.dtype.is_floating or value.dtype.is_integer or value.dtype.is_bool
        )

    def _changed(self, op: Operation) -> list[Changed | None]:
        """What half precision changed behind each input, and in the operation itself."""
        constants = self._constants()
        if constants is None:
            return [None] * (len(op.inputs) + 1)
        return [*map(constants.behind, op.inputs), constants.changed_by(op)]

    def _of_data(self, op: Operation, outcome: Operand) -> NonFiniteOrigin:
        is_variable = op.type == "ReadVariableOp"
        path = self._variable(op.inputs[0]) if is_variable else self._data(op)
        kinds = {"NaN": outcome.num_nan, "infinite": outcome.num_infinite}
        counts = " and ".join(f"{count} {kind}" for kind, count in kinds.items() if count)
        holder = "variable" if is_variable else "data"
        return NonFiniteOrigin(
            path=path,
            layer_class="",
            operation="",
            direction=FORWARD,
            reason=_WRITTEN
            if is_variable and self._is_finite_before(op)
            else f"The {holder} hold{'s' * is_variable} {counts} of {outcome.num_elements} "
            "elements before the step begins.",
            source=None,
            operands=(),
            result=outcome,
        )

    def _is_finite_before(self, op: Operation) -> bool:
        """Reads a variable as it is outside of the step."""
        tensor = self._step.reader.symbolic[self._outermost(op.inputs[0])]
        handle = _keras.captured_from(self._step.reader.graph, tensor)
        value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=op.get_attribute("dtype"))
        return bool(tf.reduce_all(tf.math.is_finite(value)))

    def _variable(self, key: int) -> str:
        tensor = self._step.reader.symbolic[self._outermost(key)]
        handle = _keras.captured_from(self._step.reader.graph, tensor)
        for variable, path in self._variable_paths:
            if any(one is handle for one in _keras.handles_of(variable.value)):
                return path
        return "@variable"

    def _data(self, op: Operation) -> str:
        tensor = self._step.reader.symbolic[self._outermost(op.outputs[0])]
        names = dict(
            zip(map(id, self._step.reader.graph.inputs), self._step.input_names, strict=False)
        )
        return names.get(id(tensor), "")

    def _outermost(self, key: int) -> int:
        """Follows a tensor out of the bodies that it was handed into."""
        op = self._step.trace.producers.get(key)
        while op is not None and op.type == "Placeholder" and op.inputs:
            key = op.inputs[0]
            op = self._step.trace.producers.get(key)
        return key


def place_of(step: StepTrace, found: Found) -> Place:
    """Tells the layer and the line of an origin; of a gradient those of what it is of."""
    op = found.operation
    source = step.trace.source(op)
    if not step.is_gradient(op):
        return (*_owner(step, found.caller or op), source)
    # A gradient of the user's own has a line of its own.
    last = op
    for last in step.originals(op):
        source = source or step.trace.source(last)
    return (*_owner(step, last), source)


def _owner(step: StepTrace, op: Operation) -> tuple[str, str]:
    call = step.trace.call_of(op)
    if call is None:
        return "", ""
    if call.kind == "model" and not call.is_custom:
        # Layers of Keras for data cast their inputs before their own call begins.
        readers = (one for one in step.trace.calls if set(op.outputs) & set(one.inputs))
        call = next((one for one in readers if one.parent == call.index), call)
    return call.path, "" if call.path.rpartition("/")[2].startswith("@") else call.layer_class


def _reason(op: Operation, operands: Sequence[Operand], outcome: Operand) -> str:
    if not (outcome.num_nan or outcome.num_infinite):
        return "It drew random numbers without a seed of Keras, and did not draw them again."
    if op.type == "Const" and outcome.constant is None:
        return "The code puts it there, and it reaches what must be finite."
    return explain(op.type, operands, outcome, op.get_attribute)


def _operand(value: Any, changed: Changed | None) -> Operand:
    array = value.numpy() if hasattr(value, "numpy") else value
    if changed is None:
        return Operand.of(array)
    source = str(changed.source) if changed.source else ""
    return Operand.of(array, constant=changed.intended, constant_source=source)
