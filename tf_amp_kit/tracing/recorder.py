"""The record of layer calls, taken down while they run."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_half, width
from tf_amp_kit.tracing import conflicts
from tf_amp_kit.tracing.paths import LayerPaths, auto_name, join
from tf_amp_kit.tracing.source import (
    Frame,
    Source,
    frames_of,
    is_own_code,
    is_user_code,
    source_of,
)


@dataclass(eq=False)
class OpenCall:
    """A layer call while it runs, and what is left of it afterwards.

    `is_in_body` tells whether it runs in the body of a loop, branch or function.
    """

    index: int
    parent: int
    depth: int
    layer: Any
    path: str
    arguments: tuple[Any, Any]
    graph: Any
    first_operation: int
    end_operation: int = -1
    outputs: Any = None
    is_conflicted: bool = False
    is_in_body: bool = False
    operation_counts: Counter[str] = field(default_factory=Counter)


@dataclass
class SeenLoss:
    """A loss that a layer added."""

    call: int
    tensor: Any
    from_regularizer: bool
    source: Source | None


class Recorder:
    """Keeps a record of the layer calls of one thread.

    Args:
        paths: Where to look up, and to add, the paths of layers. None while a
            model is still being built: then paths are class names for now.
        continue_in_float32: Whether a call that raises because of half
            precision is made again in float32, so that the rest is seen too.
        on_inputs: Takes a layer call that begins, and gives the arguments to call with.
        on_outputs: Takes a layer call that returned, and gives what it hands on.
    """

    def __init__(
        self,
        paths: LayerPaths | None,
        *,
        continue_in_float32: bool = True,
        on_inputs: Callable[[OpenCall], tuple[Any, Any]] | None = None,
        on_outputs: Callable[[OpenCall], Any] | None = None,
    ) -> None:
        self.paths = paths
        self.continue_in_float32 = continue_in_float32
        self._on_inputs = on_inputs
        self._on_outputs = on_outputs
        self.calls: list[OpenCall] = []
        self.losses: list[SeenLoss] = []
        self.conflicts: list[tuple[Any, conflicts.Clash]] = []
        self._stack: list[OpenCall] = []
        self._in_float32 = False
        self._widening: int | None = None
        self._hopeless: Exception | None = None
        # Tensors that a retried call got in float32, with what they are in half.
        self._narrow_twins: dict[int, tuple[Any, Any]] = {}

    @property
    def current(self) -> int:
        """The index of the innermost open call, or -1."""
        return self._stack[-1].index if self._stack else -1

    def run(self, operation: Any, original: Any, args: Any, kwargs: Any) -> Any:
        """Runs one call of a layer or operation, and records it."""
        if self._widening is not None and self.current == self._widening:
            args, kwargs = map_tensors((args, kwargs), self._narrow_twin)
        call = self._enter(operation, (args, kwargs))
        try:
            if self._on_inputs is not None and isinstance(operation, keras.layers.Layer):
                args, kwargs = call.arguments = self._on_inputs(call)
            try:
                call.outputs = original(operation, *args, **kwargs)
            except conflicts.POSSIBLE_ERRORS as error:
                may_retry = self.continue_in_float32 and not self._in_float32
                if not may_retry or any(one is self._hopeless for one in conflicts.chain_of(error)):
                    raise
                call.outputs = self._run_in_float32(call, error, original)
            if self._on_outputs is not None and isinstance(operation, keras.layers.Layer):
                call.outputs = self._on_outputs(call)
            return self._handed_up(call)
        finally:
            self._leave(call)

    def add_loss(self, layer: Any, loss: Any) -> None:
        """Records a loss that a layer adds."""
        frames = current_frames()
        caller = next(frame for frame in reversed(frames) if not is_own_code(frame.file))
        by_keras = not is_user_code(caller.file)
        source = None if by_keras else source_of(frames)
        for tensor in tf.nest.flatten(loss):
            if hasattr(tensor, "dtype"):
                self.losses.append(SeenLoss(self.current, tensor, by_keras, source))

    def _enter(self, operation: Any, arguments: tuple[Any, Any]) -> OpenCall:
        # A layer that builds itself by a call runs its code twice: a rehearsal
        # first, which only conflicts are kept of.
        is_rehearsal = self.paths is not None and _keras.is_only_inferring_shapes()
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        call = OpenCall(
            index=self.current if is_rehearsal else len(self.calls),
            parent=self.current,
            depth=len(self._stack) + 1,
            layer=operation,
            path="" if is_rehearsal else self._path_of(operation),
            arguments=arguments,
            graph=graph,
            # A graph's version counts its operations, without listing them.
            first_operation=graph.version if graph is not None else 0,
            is_conflicted=self._in_float32,
            is_in_body=bool(self.calls) and graph is not self.calls[0].graph,
        )
        if not is_rehearsal:
            self.calls.append(call)
        self._stack.append(call)
        return call

    def _leave(self, call: OpenCall) -> None:
        self._stack.remove(call)
        if call.graph is not None:
            call.end_operation = call.graph.version

    def _path_of(self, operation: Any) -> str:
        parent = self._stack[-1] if self._stack else None
        owner = parent.path if parent else ""
        name = auto_name(type(operation).__name__)
        if not isinstance(operation, keras.layers.Layer):
            counts = parent.operation_counts if parent else Counter[str]()
            position = counts[name]
            counts[name] += 1
            return join(owner, f"@{name}_{position}" if position else f"@{name}")
        if self.paths is None:
            return str(operation.name)
        known = self.paths.of(operation)
        return self.paths.add_stray(operation, owner) if known is None else known

    def _run_in_float32(self, call: OpenCall, error: Exception, original: Any) -> Any:
        """Makes a call again that half precision made fail, in float32.

        First only the layer's own code is widened: what it calls runs in half as
        before, and hands its results up in float32. Then all of it is.
        """
        clash = conflicts.describe(error)
        if clash.is_missing_kernel and not getattr(call.layer, "built", True):
            # Variables stored in half have no kernel to start them with: float32
            # compute does not help, and the layer is left half built.
            raise conflicts.MissingKernel(call.layer, clash) from error
        if not (clash.is_missing_kernel or clash.is_about_dtypes):
            raise error
        args, kwargs = map_tensors(call.arguments, self._widen)
        for only in (call.layer, None):
            with contextlib.suppress(*conflicts.POSSIBLE_ERRORS), self._retrying(call, only):
                outputs = original(call.layer, *args, **kwargs)
                break
        else:
            # In float32 as well: half is not the cause, and no outer call need try.
            self._hopeless = error
            raise error from None
        call.is_conflicted = True
        self.conflicts.append((call.layer, clash))
        return map_tensors(outputs, lambda value: self._as_in_half(call, value))

    @contextlib.contextmanager
    def _retrying(self, call: OpenCall, only: Any) -> Iterator[None]:
        before = self._in_float32, self._widening
        self._in_float32, self._widening = only is None, call.index
        try:
            layers = None if only is None else (only,)
            with _keras.half_layers_compute_in("float32", only=layers, is_further=True):
                yield
        finally:
            self._in_float32, self._widening = before

    def _handed_up(self, call: OpenCall) -> Any:
        """Returns what a call gives to the code around it."""
        if self._widening is None or call.parent != self._widening:
            return call.outputs

        return map_tensors(call.outputs, self._widen)

    def _widen(self, value: Any) -> Any:
        """Casts a half tensor to float32, and remembers it."""
        wide = tf.cast(value, tf.float32) if is_half(value.dtype.name) else value
        self._narrow_twins[id(wide)] = (wide, value)
        return wide

    def _narrow_twin(self, value: Any) -> Any:
        """Returns what a tensor is in half, if it was widened for a retried call."""
        return self._narrow_twins.get(id(value), (value, value))[1]

    def _as_in_half(self, call: OpenCall, value: Any) -> Any:
        """Brings an output of a float32 call to the dtype that it would have had."""
        if id(value) in self._narrow_twins:
            return self._narrow_twins[id(value)][1]
        dtype = getattr(call.layer, "compute_dtype", "")
        # A model returns what its last layer does, be that wide.
        if isinstance(call.layer, keras.Model) or not is_half(dtype):
            return value
        return tf.cast(value, dtype) if width(value.dtype.name) > 16 else value


def map_tensors(structure: Any, change: Callable[[Any], Any]) -> Any:
    """Applies a function to the tensors in a structure, symbolic inputs of Keras aside."""
    return tf.nest.map_structure(
        lambda value: change(value) if is_plain_tensor(value) else value, structure
    )


def is_plain_tensor(value: Any) -> bool:
    """Tells whether this is a tensor and no variable, which TensorFlow takes for one."""
    return tf.is_tensor(value) and not isinstance(value, keras.Variable | tf.Variable)


def current_frames() -> tuple[Frame, ...]:
    """Returns the frames of this thread's stack, outermost first."""
    return frames_of(_keras.stack_frames())
