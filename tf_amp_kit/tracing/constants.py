"""Constants that half precision changed before anything was computed.

`1e-8` reaches a float16 graph as 0.0, `1 - 1e-8` as 1.0 and `-1e9` as -inf. What
was meant is told by the line of code, or by tracing that one layer in float32.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import linecache
from collections import defaultdict
from functools import cache
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_half, round_trip
from tf_amp_kit.tracing import conflicts
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.observe import observing
from tf_amp_kit.tracing.reading import GraphReader, layer_calls
from tf_amp_kit.tracing.recorder import OpenCall, Recorder
from tf_amp_kit.tracing.records import Constant, LayerCall, Operation
from tf_amp_kit.tracing.source import Source

_RETRACE_ERRORS: Final = (*conflicts.POSSIBLE_ERRORS, AttributeError, RuntimeError, IndexError)

# Where a constant stands: layer path, file, line.
_Place = tuple[str, str, int]


def changed_constants(trace: ModelTrace, recorder: Recorder) -> ModelTrace:
    """Adds the constants to a trace that are not what the code says.

    Args:
        trace: A trace without constants.
        recorder: The record of its calls, with the layers themselves.

    Returns:
        The trace with `constants`. A true 0, 1 or infinity is not among them.
    """
    retraced: dict[int, dict[_Place, list[float]]] = {}
    found = []
    for place, suspects in _suspects(trace).items():
        for position, (op, value, known) in enumerate(suspects):
            if value is None:
                continue
            intended = known
            if intended is None:
                intended = _from_line(trace.source(op), value, trace.tensors[op.outputs[0]].dtype)
            if intended is None and op.call >= 0:
                if op.call not in retraced:
                    retraced[op.call] = _retrace(recorder, trace, op.call)
                others = retraced[op.call].get(place, [])
                intended = others[position] if len(others) == len(suspects) else value
            if intended is not None and intended != value:
                found.append(Constant(op.index, value, intended))
    return dataclasses.replace(trace, constants=tuple(found))


def _suspects(
    trace: ModelTrace,
) -> dict[_Place, list[tuple[Operation, float | None, float | None]]]:
    """Groups half constants by place: the operation, its value if it is suspect,
    and the value that was meant if the trace knows it already."""
    groups: dict[_Place, list[tuple[Operation, float | None, float | None]]] = defaultdict(list)
    for op in trace.live:
        call = trace.call_of(op)
        if call is None or call.is_conflicted or not op.outputs:
            continue
        dtype = trace.tensors[op.outputs[0]].dtype
        if not is_half(dtype):
            continue
        if op.type == "Const":
            value = _suspect_value(op, call)
            if value is not None or _is_scalar(trace, op):
                groups[_place(trace, op, call)].append((op, value, None))
        elif op.type == "Cast" and (cast := _cast_constant(trace, op, dtype)):
            groups[(*_place(trace, op, call)[:2], -op.index)].append((op, *cast))
    return groups


def _suspect_value(op: Operation, call: LayerCall) -> float | None:
    array = op.constant()
    if array is None or array.size == 0:
        return None
    values = array.astype(np.float64)
    infinite = values[np.isinf(values)]
    if infinite.size:
        return float(infinite[0])
    runs_foreign_code = call.is_custom or call.kind == "operation"
    if values.size == 1 and runs_foreign_code and float(values.flat[0]) in (0.0, 1.0):
        return float(values.flat[0])
    return None


def _cast_constant(trace: ModelTrace, op: Operation, dtype: str) -> tuple[float, float] | None:
    producer = trace.producers.get(op.inputs[0])
    array = producer.constant() if producer is not None else None
    if array is None or array.size == 0 or array.dtype.kind != "f":
        return None
    meant = array.ravel().astype(np.float64)
    values = round_trip(meant, dtype)
    changed = np.isfinite(meant) & np.isinf(values)
    if meant.size == 1:
        changed |= np.isin(values, (0.0, 1.0)) & (values != meant)
    first = np.flatnonzero(changed)[:1]
    return (float(values[first[0]]), float(meant[first[0]])) if first.size else None


def _is_scalar(trace: ModelTrace, op: Operation) -> bool:
    return trace.tensors[op.outputs[0]].shape == ()


def _place(trace: ModelTrace, op: Operation, call: LayerCall) -> _Place:
    source = trace.source(op)
    return (call.path, source.file if source else "", source.line if source else 0)


def _from_line(source: Source | None, value: float, dtype: str) -> float | None:
    """Reads what was meant off the line; None where the line leaves it open."""
    literals = _literals(source.file, source.line) if source else ()
    changed = [x for x in literals if x != value and float(round_trip(x, dtype)) == value]
    unchanged = [x for x in literals if x == value]
    if changed and not unchanged:
        return changed[0]
    return value if unchanged and not changed else None


@cache
def _literals(file: str, line: int) -> tuple[float, ...]:
    """Evaluates the constant expressions on one line of a file, `1 - 1e-8` whole."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    values: list[float] = []

    def visit(node: ast.AST) -> None:
        value = _constant_value(node)
        if value is None:
            for child in ast.iter_child_nodes(node):
                visit(child)
        elif node.lineno <= line <= (node.end_lineno or line):  # type: ignore[attr-defined]
            values.append(value)

    visit(tree)
    return tuple(values)


def _constant_value(node: ast.AST) -> float | None:
    if isinstance(node, ast.Constant):
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return float(node.value) if is_number else None  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _constant_value(node.operand)
        return None if value is None else (-value if isinstance(node.op, ast.USub) else value)
    if isinstance(node, ast.BinOp):
        left, right = _constant_value(node.left), _constant_value(node.right)
        if left is None or right is None:
            return None
        with contextlib.suppress(ArithmeticError, TypeError, ValueError):
            code = compile(ast.Expression(node), "<constant>", "eval")
            return float(eval(code, {"__builtins__": {}}))  # only literals and operators
    return None


def _retrace(recorder: Recorder, trace: ModelTrace, index: int) -> dict[_Place, list[float]]:
    """Traces one layer in float32, and lists its scalar constants by place."""
    with contextlib.suppress(*_RETRACE_ERRORS):
        return _float32_constants(recorder, recorder.calls[index], trace.training)
    return {}


def _float32_constants(
    recorder: Recorder, call: OpenCall, training: bool | None
) -> dict[_Place, list[float]]:
    inner = Recorder(recorder.paths, continue_in_float32=False)
    args, kwargs = call.arguments
    takes_training = isinstance(call.layer, keras.layers.Layer) and (
        "training" in inspect.signature(call.layer.call).parameters
    )
    if takes_training and training is not None:
        kwargs = {"training": training, **kwargs}
    flat = tf.nest.flatten((args, kwargs), expand_composites=True)
    slots = [i for i, value in enumerate(flat) if tf.is_tensor(value)]
    specs = [_float32_spec(flat[i]) for i in slots]

    def run(*tensors: Any) -> Any:
        values = list(flat)
        for slot, tensor in zip(slots, tensors, strict=True):
            values[slot] = tensor
        new_args, new_kwargs = tf.nest.pack_sequence_as(
            (args, kwargs), values, expand_composites=True
        )
        with observing(inner), _keras.half_layers_compute_in("float32"):
            return call.layer(*new_args, **new_kwargs)

    graph = _keras.trace_to_graph(run, specs, {})
    reader = GraphReader(graph, inner.calls)
    calls = layer_calls(inner, reader)
    outputs = [key for one in calls[:1] for key in one.outputs]
    trace = ModelTrace(
        training=training,
        is_eager=False,
        layers=(),
        calls=calls,
        operations=tuple(reader.operations),
        tensors=tuple(reader.tensors),
        inputs={},
        outputs={str(key): key for key in outputs},
    )
    places: dict[_Place, list[float]] = defaultdict(list)
    for op in trace.live:
        array = op.constant()
        owner = trace.call_of(op)
        if array is None or owner is None or array.dtype.kind != "f":
            continue
        if not _is_scalar(trace, op) and array.size > 1 and not np.isfinite(array).all():
            continue
        path = call.path if owner.index == 0 else owner.path
        source = trace.source(op)
        value = _extreme(array)
        if value is not None:
            key = (path, source.file if source else "", source.line if source else 0)
            places[key].append(value)
    return places


def _extreme(array: Any) -> float | None:
    if array.size == 0:
        return None
    values = array.ravel()
    # By way of the shortest decimal: 1e-8, as written, and not 9.99999993922529e-09.
    return float(str(values[np.argmax(np.abs(values))]))


def _float32_spec(tensor: Any) -> tf.TensorSpec:
    dtype = tf.float32 if is_half(tensor.dtype.name) else tensor.dtype
    return tf.TensorSpec(tensor.shape, dtype)
