"""A float32 pass in which every unit runs in half precision as well, as a shadow.

What a unit hands on is its float32 result, so that the difference to its shadow is
the error of this unit alone. A backward pass from random numbers on the outputs tells
what such an error comes to there: of each sample one number per unit and pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.comparison.planning.running.watch import float_tensors, is_unit_call
from tf_amp_kit.tracing import conflicts
from tf_amp_kit.tracing.numbering import keyed_leaves
from tf_amp_kit.tracing.observe import unobserved
from tf_amp_kit.tracing.paths import LayerPaths, held_by
from tf_amp_kit.tracing.recorder import OpenCall, map_tensors
from tf_amp_kit.tracing.step_phases import StepTensors

__all__ = ["NUM_ORTHOGONAL", "Projection", "Shadows"]

#: How many passes have signs at right angles to each other.
NUM_ORTHOGONAL: Final = 4

# What gives values on as they are, rounded or not: some, in another shape or order.
_SELECTING: Final = frozenset(
    {
        "ExpandDims",
        "Identity",
        "MaxPool",
        "Relu",
        "Relu6",
        "Reshape",
        "Squeeze",
        "StopGradient",
        "StridedSlice",
        "Transpose",
    }
)


@dataclass(frozen=True)
class Projection:
    """One error, and what it comes to at the outputs.

    Attributes:
        unit: The path of the unit whose error it is.
        giver: Of the error of rounding what the unit takes: the unit that returned it,
            which rounds it already if it runs in half precision; None otherwise.
        tensor: What the error of each sample comes to: a vector, rows of one sample next
            to each other; None if no output depends on it.
    """

    unit: str
    giver: str | None
    tensor: Any


@dataclass
class _Error:
    unit: str
    giver: str | None
    at: Any
    difference: Any


@dataclass
class Shadows:
    """Adds shadows to a float32 step while it is traced.

    Args:
        units: The paths of the units.
        paths: The paths of the model's layers.
        half: The half format.
        weights: What the error of each output counts, by key: one over its norm.
        of_loss: Whether to project on the loss rather than on the outputs.
        inverse_norm: One over the size of the loss; of gradients over their norm.
    """

    units: Collection[str]
    paths: LayerPaths
    half: str
    weights: Mapping[str, float]
    of_loss: bool = False
    inverse_norm: float = 1.0
    #: Chooses the random signs, and one of `NUM_ORTHOGONAL` ways to use them: assign
    #: others for another pass.
    seed: Any = field(default_factory=lambda: tf.Variable(0, trainable=False, dtype=tf.int32))
    probe: Any = field(default_factory=lambda: tf.Variable(0, trainable=False, dtype=tf.int32))
    #: Units whose shadow raised, with what it said.
    raising: dict[str, str] = field(default_factory=dict)
    #: What a pass computes.
    projections: list[Projection] = field(default_factory=list)
    nonfinite: dict[str, Any] = field(default_factory=dict)
    num_samples: Any = None
    errors: list[_Error] = field(default_factory=list)
    # What units had in variables that a call may write, when it began.
    _state: dict[str, list[tuple[Any, Any]]] = field(default_factory=dict)
    # The names of what units take that comes from others.
    _from_units: set[str] = field(default_factory=set)
    # Who made a tensor, by its name.
    _givers: dict[str, str] = field(default_factory=dict)

    def on_inputs(self, call: OpenCall) -> tuple[Any, Any]:
        """Gives each unit tensors of its own, so that gradients tell what it alone takes."""
        if not is_unit_call(call, self.units):
            return call.arguments
        self._state[call.path] = _state_of(call.layer)
        given: dict[int, Any] = {}
        return map_tensors(call.arguments, lambda one: self._taken(call.path, one, given))  # type: ignore[no-any-return]

    def on_outputs(self, call: OpenCall) -> Any:
        """Runs a unit again in half precision, and keeps the difference."""
        if not is_unit_call(call, self.units):
            return call.outputs
        shadow = self._shadow_of(call)
        outputs = map_tensors(call.outputs, lambda one: self._returned(call.path, one))
        if shadow is not None:
            self.keep(call, float_tensors(outputs), float_tensors(shadow))
        return outputs

    def on_end(self, step: StepTensors) -> None:
        """Adds the backward pass, once the whole step is there."""
        outputs = outputs_by_key(step.outputs)
        self.set_num_samples(outputs)
        target = step.loss * self.inverse_norm if self.of_loss else self._probed(outputs)
        self.project(tf.gradients(target, [one.at for one in self.errors]))

    def set_num_samples(self, outputs: dict[str, Any]) -> None:
        """Takes the number of samples from the outputs; a scalar is of all together."""
        sizes = [tf.shape(one)[0] for one in outputs.values() if one.shape.rank != 0]
        self.num_samples = sizes[0] if sizes else tf.constant(1)

    def project(self, gradients: Sequence[Any]) -> None:
        self.projections = [
            Projection(one.unit, one.giver, by_row(gradient, one.difference))
            for one, gradient in zip(self.errors, gradients, strict=True)
            if gradient is not None
        ]

    def keep(self, call: OpenCall, outputs: list[Any], shadow: list[Any]) -> None:
        """Keeps the errors of a call; `outputs` are what it hands on."""
        for wide, narrow in zip(outputs, shadow, strict=True):
            self._add(call.path, None, wide, narrow)

    def copied(self, unit: str, value: Any) -> Any:
        """Makes the tensor of its own that a unit takes."""
        return tf.identity(value)

    def _taken(self, unit: str, value: Any, given: dict[int, Any]) -> Any:
        if not isinstance(value, tf.Tensor):
            return value  # sparse and ragged ones
        if id(value) in given:
            return given[id(value)]
        own = given[id(value)] = _keras.copy_mask(value, self.copied(unit, value))
        giver = self._giver_of(value) if value.dtype.is_floating else None
        if giver is not None:
            self._add(unit, giver, own, tf.cast(value, self.half))
            self._from_units.add(own.name)
        self._givers[own.name] = unit
        return own

    def _returned(self, unit: str, value: Any) -> Any:
        if not isinstance(value, tf.Tensor):
            return value
        own = _keras.copy_mask(value, tf.identity(value))
        self._givers[own.name] = unit
        return own

    def _shadow_of(self, call: OpenCall) -> Any:
        layers = [layer for _, layer in LayerPaths(call.layer)]
        args, kwargs = map_tensors(call.arguments, lambda one: self._as_in_half(call.layer, one))
        try:
            with (
                unobserved(),
                _as_before(self._state.pop(call.path, [])),
                _keras.losses_restored(layers),
                _keras.half_layers_compute_in("float32", only=()),
            ):
                return call.layer(*args, **kwargs)
        except conflicts.POSSIBLE_ERRORS as error:
            self.raising[call.path] = next(iter(str(error).splitlines()), type(error).__name__)
            return None

    def _as_in_half(self, layer: Any, value: Any) -> Any:
        """Returns what a layer takes in half precision, if nobody casts that for it."""
        is_cast = getattr(layer, "autocast", True) or not isinstance(value, tf.Tensor)
        if is_cast or value.name not in self._from_units:
            return value
        return _keras.copy_mask(value, tf.cast(value, self.half))

    def _add(self, unit: str, giver: str | None, wide: Any, narrow: Any) -> None:
        narrow = tf.cast(narrow, wide.dtype)
        # Infinities that are there in float32 too are no error.
        difference = tf.where(narrow == wide, tf.zeros_like(wide), narrow - wide)
        is_bad = ~tf.math.is_finite(difference) & tf.math.is_finite(wide)
        if giver is None:
            bad = tf.reduce_any(is_bad)
            self.nonfinite[unit] = bad | self.nonfinite.get(unit, False)
        difference = tf.where(tf.math.is_finite(difference), difference, tf.zeros_like(wide))
        self.errors.append(_Error(unit, giver, wide, difference))

    def _giver_of(self, value: Any) -> str | None:
        """Returns the unit that a tensor comes from, through nothing that computes."""
        while value.name not in self._givers:
            if value.op.type not in _SELECTING or not value.op.inputs:
                return None
            value = value.op.inputs[0]
        return self._givers[value.name]

    def _probed(self, outputs: dict[str, Any]) -> Any:
        """Multiplies outputs by random signs and adds up: a gradient is a random sum of rows."""
        terms = [
            tf.reduce_sum(random_signs(value, self.seed, self.probe, index) * value)
            * tf.cast(self.weights[key], value.dtype)
            for index, (key, value) in enumerate(outputs.items())
        ]
        return tf.add_n([tf.cast(one, tf.float32) for one in terms])


def _state_of(layer: Any) -> list[tuple[Any, Any]]:
    """Reads what a layer may write: variables, and states, which Keras does not track."""
    held = (value for _, sub in LayerPaths(layer) for _, value in held_by(sub))
    found = [*layer.variables, *(one for one in held if isinstance(one, keras.Variable))]
    unique = {id(one): one for one in found if not one.trainable}
    return [(one, tf.identity(one.value)) for one in unique.values()]


@contextlib.contextmanager
def _as_before(state: list[tuple[Any, Any]]) -> Iterator[None]:
    """Starts from what variables held before a call, and ends with what they hold now.

    Recurrent layers may keep states, and random ones seeds. Of other layers nothing that
    is read here is written, and TensorFlow leaves out what has no use.
    """
    if not any(_is_written(one) for one, _ in state):
        yield
        return
    after = [tf.identity(one.value) for one, _ in state]
    for one, value in state:
        one.assign(value)
    try:
        yield
    finally:
        for (one, _), value in zip(state, after, strict=True):
            one.assign(value)


def _is_written(variable: Any) -> bool:
    return _keras.may_be_written(variable.value)


def random_signs(value: Any, seed: Any, probe: Any, index: int) -> Any:
    """Draws random signs, those of four passes at right angles to each other.

    Of few outputs four random passes would see some twice and others never.
    """
    shape = tf.shape(value)
    coins = tf.random.stateless_uniform(shape, [seed, index], minval=0, maxval=2, dtype=tf.int32)
    length = tf.size(value) // tf.maximum(shape[0], 1) if value.shape.rank != 0 else 1
    places = tf.reshape(tf.range(tf.size(value)) % tf.maximum(length, 1), shape)
    # A Hadamard matrix of size 4: the parity of the bits that row and column share.
    shared = tf.bitwise.bitwise_and(places % NUM_ORTHOGONAL, probe)
    flips = tf.bitwise.bitwise_xor(shared % 2, shared // 2)
    return tf.cast(1 - 2 * tf.bitwise.bitwise_xor(coins, flips), value.dtype)


def outputs_by_key(outputs: Any) -> dict[str, Any]:
    return {
        key: leaf
        for key, leaf in keyed_leaves(outputs)
        if tf.is_tensor(leaf) and leaf.dtype.is_floating
    }


def by_row(gradient: Any, difference: Any) -> Any:
    """Multiplies and adds up all but the first dimension."""
    product = tf.convert_to_tensor(gradient) * difference
    # Where the slope is infinite, of a root at 0 for example, it tells nothing.
    product = tf.where(tf.math.is_finite(product), product, tf.zeros_like(product))
    if product.shape.rank is None:
        return tf.reduce_sum(tf.reshape(product, [tf.shape(product)[0], -1]), axis=1)
    if not product.shape.rank:
        return tf.reshape(product, [1])
    return tf.reduce_sum(product, axis=list(range(1, product.shape.rank)))
