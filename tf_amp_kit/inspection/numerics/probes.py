"""Statistics of tensors, attached to them while a train step is traced.

A probe hands its tensor on only when it has been counted: nothing piles up that
waits to be looked at. In the backward pass it counts the gradient that arrives.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_half
from tf_amp_kit.inspection.numerics.statistics import StatisticsCounter, TensorStatistics
from tf_amp_kit.tracing.recorder import OpenCall

__all__ = ["GRADIENT", "INPUT", "OUTPUT", "WEIGHT", "WEIGHT_GRADIENT", "Probe", "Probes"]

INPUT: Final = "input"
OUTPUT: Final = "output"
GRADIENT: Final = "gradient"
WEIGHT: Final = "weight"
WEIGHT_GRADIENT: Final = "weight_gradient"

_GRADIENT_TYPE: Final = "TfAmpKitProbed"

_numbers = itertools.count()
_watches = itertools.count()
# TensorFlow keeps the functions that graphs call for ever: they must hold nothing.
_open: WeakValueDictionary[int, Probes] = WeakValueDictionary()


def _count(number: Any, index: Any, watch: Any, values: Any) -> Any:
    probes = _open.get(int(number))
    if probes is not None:
        probes.add_at(int(index), values)
    return watch


def _watch(value: Any, number: int, index: int) -> Any:
    """Hands a tensor on when it has been counted.

    Not stateful: what nothing depends on is not computed in training either, such as
    the step that Keras's loops make beforehand. The third number keeps TensorFlow from
    taking two looks at one tensor for one.
    """
    wide = tf.cast(value, tf.float32) if is_half(value.dtype.name) else value
    inputs = [number, index, next(_watches), wide]
    # Something has to be returned: of a function without results there is no operation
    # to wait for.
    counted = tf.numpy_function(_count, inputs, tf.int32, stateful=False)
    with tf.control_dependencies([counted]):
        return tf.identity(value)


def _watch_gradient(op: Any, gradient: Any, *_: Any) -> tuple[Any, None, None]:
    number, index = (int(tf.get_static_value(one)) for one in op.inputs[1:])
    return _watch(gradient, number, index), None, None


tf.RegisterGradient(_GRADIENT_TYPE)(_watch_gradient)


@dataclass
class Count:
    """Statistics, and whether anything was ever counted for them."""

    counter: StatisticsCounter
    is_begun: bool = False
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def add(self, values: Any) -> None:
        """Counts values: of a layer that is called twice, two threads may come at once."""
        with self._lock:
            self.counter.add(values)
            self.is_begun = True


@dataclass
class Probe:
    """One tensor, and what was counted of it.

    Attributes:
        kind: What tensor it is: `INPUT`, `OUTPUT`, `GRADIENT` and so on.
        path: The path of the layer, or of the weight.
        position: The position among the tensors of the same path.
        layer_class: The layer's class name.
        dtype: What the layer computes in, or the weight is used in.
        counts: The statistics of each tensor, one by call; a layer that only hands a
            tensor on has them in common with the layer that made it.
    """

    kind: str
    path: str
    position: int
    layer_class: str
    dtype: str
    counts: list[Count] = field(default_factory=list, repr=False)

    @property
    def is_begun(self) -> bool:
        """Whether anything was ever counted."""
        return any(count.is_begun for count in self.counts)

    def statistics(self, precision: str) -> TensorStatistics:
        """Adds up what was counted in all calls."""
        total = StatisticsCounter(precision)
        for count in self.counts:
            total.merge(count.counter)
        return total.freeze()


class Probes:
    """All that is counted in one train step.

    Args:
        precision: The half format that the rounding error is measured against.
    """

    def __init__(self, precision: str) -> None:
        self.all: list[Probe] = []
        self._precision = precision
        self._number = next(_numbers)
        self._by_place: dict[tuple[str, str, int], Probe] = {}
        self._counts: list[Count] = []
        # What a layer only hands on was counted before: by the tensor's id.
        self._counted: dict[int, tuple[Any, Count, Count]] = {}
        _open[self._number] = self

    def place(self, kind: str, path: str, position: int, layer_class: str, dtype: str) -> Probe:
        """Returns the probe of a place; the calls of a shared layer have one."""
        key = (kind, path, position)
        if key not in self._by_place:
            self._by_place[key] = Probe(kind, path, position, layer_class, dtype)
            self.all.append(self._by_place[key])
        return self._by_place[key]

    def on_outputs(self, call: OpenCall) -> Any:
        """Probes what a layer returned."""
        if _keras.is_only_inferring_shapes():
            return call.outputs
        leaves = tf.nest.flatten(call.outputs)
        # Cells of loops return one tensor as their output and as their state.
        probed: dict[int, Any] = {}
        for position, leaf in enumerate(leaves):
            if id(leaf) not in probed:
                probed[id(leaf)] = self._probed(call, position, leaf)
        return tf.nest.pack_sequence_as(call.outputs, [probed[id(leaf)] for leaf in leaves])

    def on_gradients(
        self, gradients: list[tuple[Any, Any]], paths: dict[int, str], dtypes: dict[int, str]
    ) -> Any:
        """Probes the gradients of weights, of sparse ones the rows that they hold."""
        return [
            (variable, self._probed_gradient(gradient, self._weight_place(variable, paths, dtypes)))
            for variable, gradient in gradients
        ]

    def add(self, probe: Probe, values: Any) -> None:
        """Counts values that are at hand."""
        if not probe.counts:
            self._new_count(probe)
        probe.counts[0].add(values)

    def add_at(self, index: int, values: Any) -> None:
        """Counts values for the tensor that was given this index."""
        self._counts[index].add(values)

    def _new_count(self, probe: Probe) -> int:
        count = Count(StatisticsCounter(self._precision))
        probe.counts.append(count)
        self._counts.append(count)
        return len(self._counts) - 1

    def _probed(self, call: OpenCall, position: int, value: Any) -> Any:
        if not isinstance(value, tf.Tensor) or not value.dtype.is_floating:
            return value
        if id(value) in self._counted:
            self._share(call, position, value)
            return value
        output, gradient = (
            self._new_count(self._place_of(kind, call, position)) for kind in (OUTPUT, GRADIENT)
        )
        watched = _watch(value, self._number, output)
        probed = _keras.copy_mask(value, self._with_gradient(watched, gradient))
        self._counted[id(probed)] = (probed, self._counts[output], self._counts[gradient])
        return probed

    def _place_of(self, kind: str, call: OpenCall, position: int) -> Probe:
        layer = call.layer
        dtype = layer.dtype_policy.compute_dtype  # that of the layer is float32 for now
        return self.place(kind, call.path, position, type(layer).__name__, dtype)

    def _share(self, call: OpenCall, position: int, value: Any) -> None:
        """Gives a layer that only hands a tensor on the numbers of that tensor."""
        # A model's output is its last layer's: once is enough.
        if isinstance(call.layer, keras.Model):
            return
        _, *counted = self._counted[id(value)]
        for kind, count in zip((OUTPUT, GRADIENT), counted, strict=True):
            self._place_of(kind, call, position).counts.append(count)

    def _with_gradient(self, value: Any, index: int) -> Any:
        number = self._number
        return _keras.handed_on(
            value, (number, index), _GRADIENT_TYPE, lambda one: _watch(one, number, index)
        )

    def _weight_place(self, variable: Any, paths: dict[int, str], dtypes: dict[int, str]) -> Probe:
        path = paths.get(id(variable), variable.name)
        return self.place(WEIGHT_GRADIENT, path, 0, "", dtypes.get(id(variable), ""))

    def _probed_gradient(self, gradient: Any, probe: Probe) -> Any:
        if gradient is None or not gradient.dtype.is_floating:
            return gradient
        index = self._new_count(probe)
        if isinstance(gradient, tf.IndexedSlices):
            rows = _watch(gradient.values, self._number, index)
            return tf.IndexedSlices(rows, gradient.indices, gradient.dense_shape)
        return _watch(gradient, self._number, index)
