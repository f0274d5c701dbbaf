"""Turning what was observed, in a graph or eagerly, into one kind of record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.bodies import CALLING_TYPES, NUM_OWN_INPUTS, body_names
from tf_amp_kit.tracing.numbering import Reader, numbers
from tf_amp_kit.tracing.observe import written_at
from tf_amp_kit.tracing.raw import EagerRaw, GraphRaw
from tf_amp_kit.tracing.recorder import OpenCall, Recorder
from tf_amp_kit.tracing.records import AddedLoss, LayerCall, Operation, Tensor


class GraphReader:
    """Reads the operations of a graph, and of all bodies below it.

    Args:
        graph: The `FuncGraph` of a concrete function.
        calls: The layer calls that were observed while it was traced.
    """

    def __init__(self, graph: Any, calls: Sequence[OpenCall]) -> None:
        self.operations: list[Operation] = []
        self.tensors: list[Tensor] = []
        self.graph = graph
        #: The tensors behind the numbers.
        self.symbolic: list[Any] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self._calls = calls
        self._graphs_read: set[int] = set()
        self._read(graph, owner=-1, sources={})

    def number(self, value: Any) -> int | None:
        """Returns a symbolic tensor's number."""
        if not tf.is_symbolic_tensor(value):
            return None
        return self._numbers.get((id(value.graph), value.name))

    def known_number(self, value: Any) -> int:
        """Returns the number of a tensor of the graph, or of a body."""
        return self._numbers[id(value.graph), value.name]

    def _read(self, graph: Any, owner: int, sources: dict[str, int]) -> None:
        self._graphs_read.add(id(graph))
        operations = graph.get_operations()
        owners = self._owners(graph, len(operations), owner)
        for raw, call in zip(operations, owners, strict=True):
            inputs = tuple(self._number_of(tensor) for tensor in raw.inputs)
            if raw.type == "Placeholder" and raw.outputs[0].name in sources:
                inputs = (sources[raw.outputs[0].name],)
            bodies, spans = self._read_bodies(graph, raw, call, inputs)
            self.operations.append(
                Operation(
                    index=len(self.operations),
                    type=raw.type,
                    call=call,
                    inputs=inputs,
                    outputs=tuple(self._number_of(tensor) for tensor in raw.outputs),
                    raw=GraphRaw(raw),
                    bodies=bodies,
                    body_spans=spans,
                )
            )

    def _owners(self, graph: Any, count: int, owner: int) -> list[int]:
        owners = [owner] * count
        for call in self._calls:  # in the order of entering: inner calls overwrite
            if call.graph is graph:
                span = range(call.first_operation, min(call.end_operation, count))
                owners[span.start : span.stop] = [call.index] * len(span)
        return owners

    def _read_bodies(
        self, graph: Any, raw: Any, call: int, inputs: tuple[int, ...]
    ) -> tuple[tuple[tuple[int, ...], ...], tuple[range, ...]]:
        if raw.type not in CALLING_TYPES:
            return (), ()
        bodies: list[tuple[int, ...]] = []
        spans: list[range] = []
        for name in body_names(raw):
            body = _keras.function_graph(graph, name)
            if body is None or id(body) in self._graphs_read:
                continue
            given = inputs[NUM_OWN_INPUTS[raw.type] :]
            sources = {tensor.name: key for tensor, key in zip(body.inputs, given, strict=False)}
            start = len(self.operations)
            self._read(body, call, sources)
            spans.append(range(start, len(self.operations)))
            bodies.append(tuple(self._number_of(tensor) for tensor in body.outputs))
        return tuple(bodies), tuple(spans)

    def _number_of(self, tensor: Any) -> int:
        key = (id(tensor.graph), tensor.name)
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            self.tensors.append(_tensor(tensor))
            self.symbolic.append(tensor)
        return self._numbers[key]


class EagerReader:
    """Takes down each operation while a model runs eagerly.

    Its `callback` is for `_keras.eager_operations_seen`.

    Args:
        recorder: Tells which layer call is open.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.operations: list[Operation] = []
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # an id is only unique while its object lives
        self._recorder = recorder

    def number(self, value: Any) -> int | None:
        """Returns an eager tensor's number."""
        return self._numbers.get(id(value))

    def callback(
        self,
        op_type: Any,
        inputs: Sequence[Any],
        attrs: Sequence[Any] | None,
        outputs: Sequence[Any],
        op_name: Any = None,
        graph: Any = None,
    ) -> None:
        """Records one operation."""
        if graph is not None:
            return
        kind = op_type.decode() if isinstance(op_type, bytes) else str(op_type)
        pairs = list(attrs or ())
        attributes = dict(zip(map(str, pairs[::2]), pairs[1::2], strict=False))
        keys = tuple(self._number_of(value) for value in inputs if tf.is_tensor(value))
        self._add(kind, keys, [out for out in outputs if tf.is_tensor(out)], attributes)

    def add_input(self, value: Any) -> None:
        """Numbers a tensor that the model is called with."""
        self._add("Placeholder", (), [value], {})

    def _number_of(self, value: Any) -> int:
        if id(value) not in self._numbers:
            # Nothing made it: it came from a Python number, an array or a closure.
            # Not the tensor itself: NumPy cannot read a bfloat16 scalar out of it.
            attributes = {"value": value.numpy()} if _is_small_constant(value) else {}
            self._add("Const", (), [value], attributes)
        return self._numbers[id(value)]

    def _add(
        self, kind: str, inputs: tuple[int, ...], outputs: list[Any], attributes: dict[str, Any]
    ) -> None:
        keys = []
        for value in outputs:
            self._kept.append(value)
            self._numbers[id(value)] = len(self.tensors)
            keys.append(len(self.tensors))
            self.tensors.append(_tensor(value))
        self.operations.append(
            Operation(
                index=len(self.operations),
                type=kind,
                call=self._recorder.current,
                inputs=inputs,
                outputs=tuple(keys),
                raw=EagerRaw(_keras.stack_frames(), attributes),
            )
        )


def layer_calls(recorder: Recorder, reader: Reader) -> tuple[LayerCall, ...]:
    """Freezes the observed calls, with their tensors numbered."""
    calls: list[LayerCall] = []
    for call in recorder.calls:
        layer = call.layer
        is_layer = isinstance(layer, keras.layers.Layer)
        owner_dtype = calls[call.parent].compute_dtype if call.parent >= 0 else ""
        calls.append(
            LayerCall(
                index=call.index,
                parent=call.parent,
                depth=call.depth,
                path=call.path,
                layer_class=type(layer).__name__,
                kind=_kind(layer),
                is_custom=is_custom(layer),
                policy=layer.dtype_policy.name if is_layer else "",
                compute_dtype=layer.compute_dtype if is_layer else owner_dtype,
                inputs=numbers(call.arguments, reader),
                outputs=numbers(call.outputs, reader),
                is_conflicted=call.is_conflicted,
                written_at=None if is_layer else written_at(layer),
            )
        )
    return tuple(calls)


def added_losses(recorder: Recorder, reader: Reader) -> tuple[AddedLoss, ...]:
    """Freezes the observed losses, with their tensors numbered."""
    return tuple(
        AddedLoss(
            call=loss.call,
            tensor=key,
            dtype=tf.as_dtype(loss.tensor.dtype).name,
            from_regularizer=loss.from_regularizer,
            source=loss.source,
        )
        for loss in recorder.losses
        for key in [reader.number(loss.tensor)]
        if key is not None
    )


def is_custom(layer: Any) -> bool:
    """Tells whether a layer runs code from outside Keras."""
    if isinstance(layer, keras.layers.Lambda):
        return True
    if isinstance(layer, keras.layers.TimeDistributed):
        return is_custom(layer.layer)  # it runs `layer.call` itself
    return not type(layer).__module__.startswith("keras.")


def _kind(layer: Any) -> str:
    if isinstance(layer, keras.Model):
        return "model"
    return "layer" if isinstance(layer, keras.layers.Layer) else "operation"


def _tensor(value: Any) -> Tensor:
    shape = value.shape
    return Tensor(value.dtype.name, None if shape.rank is None else tuple(shape.as_list()))


def _is_small_constant(value: Any) -> bool:
    return bool(value.dtype.is_floating) and value.shape.num_elements() == 1


__all__ = [
    "EagerReader",
    "GraphReader",
    "added_losses",
    "is_custom",
    "layer_calls",
]
