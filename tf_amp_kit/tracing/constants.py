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
from tf_amp_kit.tracing.recorder import OpenCall, Recorder, is_plain_tensor
from tf_amp_kit.tracing.records import Constant, LayerCall, Operation
from tf_amp_kit.tracing.source import Source

_RETRACE_ERRORS: Final = (*conflicts.POSSIBLE_ERRORS, AttributeError, RuntimeError, IndexError)

# Where a constant stands: file and line.
_Line = tuple[str, int]
# What layers of one kind hold in float32: their scalar constants by line.
Probes = dict[Any, dict[_Line, list[float]]]


def changed_constants(trace: ModelTrace, recorder: Recorder, probes: Probes) -> ModelTrace:
    """Adds the constants to a trace that are not what the code says.

    Args:
        trace: A trace without constants.
        recorder: The record of its calls, with the layers themselves.
        probes: What float32 traces of single layers showed; filled here. Layers of
            one class with the same numbers and the same inputs need only one.

    Returns:
        The trace with `constants`. A true 0, 1 or infinity is not among them.
    """
    found = []
    for (index, file, line), suspects in _suspects(trace).items():
        for position, (op, value, known) in enumerate(suspects):
            if value is None:
                continue
            intended = known
            if intended is None:
                intended = _from_line(trace.source(op), value, trace.tensors[op.outputs[0]].dtype)
            if intended is None:
                probe = _probe(recorder, recorder.calls[index], trace.training, probes)
                others = probe.get((file, line), [])
                intended = others[position] if len(others) == len(suspects) else value
            if intended != value:
                found.append(Constant(op.index, value, intended))
    return dataclasses.replace(trace, constants=tuple(found))


def _suspects(
    trace: ModelTrace,
) -> dict[tuple[int, str, int], list[tuple[Operation, float | None, float | None]]]:
    """Groups half constants by call and line: the operation, its value if it is suspect,
    and the value that was meant if the trace knows it already."""
    groups: dict[Any, list[tuple[Operation, float | None, float | None]]] = defaultdict(list)
    for op in trace.live:
        call = trace.call_of(op)
        if call is None or call.is_conflicted or not op.outputs:
            continue
        dtype = trace.tensors[op.outputs[0]].dtype
        if not is_half(dtype):
            continue
        if op.type == "Const":
            value = _suspect_value(op, call)
            if value is not None or _is_scalar(op):
                groups[(call.index, *_line(trace, op))].append((op, value, None))
        elif op.type == "Cast" and (cast := _cast_constant(trace, op, dtype)):
            groups[(call.index, "", -op.index)].append((op, *cast))
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


def _is_scalar(op: Operation) -> bool:
    array = op.constant()
    return array is not None and array.size == 1


def _line(trace: ModelTrace, op: Operation) -> _Line:
    source = trace.source(op)
    return (source.file, source.line) if source else ("", 0)


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


def _probe(
    recorder: Recorder, call: OpenCall, training: bool | None, probes: Probes
) -> dict[_Line, list[float]]:
    """Traces one layer in float32, unless one of its kind was, and lists its constants."""
    args, kwargs = call.arguments
    layer = call.layer
    takes_training = isinstance(layer, keras.layers.Layer) and (
        "training" in inspect.signature(layer.call).parameters
    )
    if takes_training and training is not None:
        kwargs = {"training": training, **kwargs}
    flat = tf.nest.flatten((args, kwargs), expand_composites=True)
    kind = _kind(layer, flat)
    if kind not in probes:
        probes[kind] = {}
        with contextlib.suppress(*_RETRACE_ERRORS):
            inner = Recorder(recorder.paths, continue_in_float32=False)
            graph = _trace_alone(layer, (args, kwargs), flat, inner)
            probes[kind] = _scalars_by_line(GraphReader(graph, inner.calls), inner)
    return probes[kind]


def _kind(layer: Any, flat: list[Any]) -> Any:
    """Returns what layers have in common whose constants are the same."""
    own = {name: value for name, value in vars(layer).items() if name not in _base_attributes()}
    attributes = tuple((name, _fingerprint(value)) for name, value in own.items())
    inputs = tuple(
        str(_float32_spec(value)) if is_plain_tensor(value) else repr(value) for value in flat
    )
    return type(layer), attributes, inputs


@cache
def _base_attributes() -> frozenset[str]:
    return frozenset(vars(keras.layers.Layer()))


def _fingerprint(value: Any) -> Any:
    """Stands for a value: equal ones make equal constants."""
    if isinstance(value, keras.layers.Layer | keras.Variable):
        return type(value)  # their constants are theirs
    if isinstance(value, str | int | float | complex | np.generic | type(None)):
        return repr(value)
    if isinstance(value, list | tuple):
        return tuple(map(_fingerprint, value))
    if isinstance(value, dict):
        return tuple((repr(key), _fingerprint(item)) for key, item in value.items())
    if type(value).__module__.startswith("keras."):
        return type(value)
    return id(value)


def _trace_alone(
    layer: Any, arguments: tuple[Any, Any], flat: list[Any], recorder: Recorder
) -> Any:
    """Traces one call in float32, with placeholders for its tensors."""
    slots = [i for i, value in enumerate(flat) if is_plain_tensor(value)]

    def run(*tensors: Any) -> None:
        values = list(flat)
        for slot, tensor in zip(slots, tensors, strict=True):
            values[slot] = tensor
        args, kwargs = tf.nest.pack_sequence_as(arguments, values, expand_composites=True)
        with observing(recorder), _keras.half_layers_compute_in("float32"):
            layer(*args, **kwargs)

    return _keras.trace_to_graph(run, [_float32_spec(flat[i]) for i in slots], {})


def _scalars_by_line(reader: GraphReader, recorder: Recorder) -> dict[_Line, list[float]]:
    """Lists the constants that the outermost call made itself, in order."""
    calls = layer_calls(recorder, reader)
    trace = ModelTrace(
        training=None,
        is_eager=False,
        layers=(),
        calls=calls,
        operations=tuple(reader.operations),
        tensors=tuple(reader.tensors),
        inputs={},
        outputs={str(key): key for key in calls[0].outputs},
    )
    lines: dict[_Line, list[float]] = defaultdict(list)
    for op in trace.live:
        array = op.constant() if op.call == 0 else None
        # An array counts only where half precision would make it infinite.
        if array is None or array.dtype.kind != "f" or not (array.size == 1 or _is_large(array)):
            continue
        lines[_line(trace, op)].append(_extreme(array))
    return lines


def _is_large(array: Any) -> bool:
    return (
        bool(array.size)
        and bool(np.isfinite(array).all())
        and bool(np.isinf(round_trip(array, "float16")).any())
    )


def _extreme(array: Any) -> float:
    values = array.ravel()
    # By way of the shortest decimal: 1e-8, as written, and not 9.99999993922529e-09.
    return float(str(values[np.argmax(np.abs(values))]))


def _float32_spec(tensor: Any) -> tf.TensorSpec:
    dtype = tf.float32 if is_half(tensor.dtype.name) else tensor.dtype
    return tf.TensorSpec(tensor.shape, dtype)
