"""What the half-precision errors of units come to in the weights' gradients.

A unit is off in the forward pass, so that all gradients are computed for other
activations; and in the backward pass, where it computes in half precision too: the
gradients of its own weights, and what it hands back to the units before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tf_amp_kit.comparison.planning.probing.shadows import (
    Projection,
    Shadows,
    by_row,
    outputs_by_key,
    random_signs,
)
from tf_amp_kit.comparison.planning.running.watch import float_tensors
from tf_amp_kit.comparison.planning.units import topmost
from tf_amp_kit.tracing.recorder import OpenCall
from tf_amp_kit.tracing.step_phases import StepTensors

__all__ = ["GradientShadows"]


@dataclass(frozen=True)
class _Pair:
    """A call of a unit next to its shadow: what both took and returned."""

    unit: str
    layer: Any
    inputs: list[Any]
    outputs: list[Any]
    shadow: list[Any]


@dataclass
class GradientShadows(Shadows):
    """Adds shadows, and a backward pass from random signs on the weights' gradients.

    Attributes:
        scale: The loss scale, which keeps gradients in the range of the half format.
    """

    scale: float = 1.0
    _pairs: list[_Pair] = field(default_factory=list)
    # The number of each input of a unit, by its name, and what float32 hands back there.
    _forks: dict[str, int] = field(default_factory=dict)
    _handed_back: dict[int, Any] = field(default_factory=dict)

    def on_end(self, step: StepTensors) -> None:
        """Adds both backward passes, once the whole step is there."""
        self.set_num_samples(outputs_by_key(step.outputs))
        # Of the whole model: a step that ends at the loss has not taken them itself.
        variables = self.paths[""].trainable_variables
        weights = [getattr(one, "value", one) for one in variables]
        points = [one.at for one in self.errors]
        ends = [end for pair in self._pairs for end in pair.outputs]
        found = tf.gradients(step.loss, [*weights, *points, *ends])
        gradients = [_dense(one) for one in found[: len(weights)]]
        arriving = (
            dict(zip([end.name for end in ends], found[-len(ends) :], strict=True)) if ends else {}
        )
        signs = self._draw(gradients)
        pairs = [
            (sign, one) for sign, one in zip(signs, gradients, strict=True) if sign is not None
        ]
        target = tf.add_n([tf.reduce_sum(sign * one) for sign, one in pairs]) * self.inverse_norm
        self.project(tf.gradients(target, points))
        shares = dict(
            zip(
                self._handed_back,
                tf.gradients(target, [*self._handed_back.values()]),
                strict=True,
            )
        )
        numbers = {id(one): index for index, one in enumerate(variables)}
        errors: dict[tuple[str, int], Any] = {}
        for pair in self._pairs:
            half = self._half_gradients(pair, arriving, numbers)
            for own in pair.inputs:
                number = self._forks.get(own.name)
                if number is not None and shares.get(number) is not None:
                    self._project_back(pair.unit, half.get(own.name), number, shares[number])
            for number in self._weights_of(pair, numbers):
                if half.get(number) is not None and gradients[number] is not None:
                    found_errors = errors.setdefault((pair.unit, number), -gradients[number])
                    errors[pair.unit, number] = found_errors + half[number]
        for (unit, number), error in errors.items():
            finite = self._finite(unit, error)
            product = tf.reduce_sum(signs[number] * finite) * self.inverse_norm
            self.projections.append(Projection(unit, None, tf.reshape(product, [1])))

    def copied(self, unit: str, value: Any) -> Any:
        """Remembers what goes back through this one input alone."""
        if not value.dtype.is_floating:
            return super().copied(unit, value)
        number = len(self._forks)

        def back(gradient: Any) -> Any:
            own = tf.identity(gradient)
            # The gradient of a gradient comes this way again: the first one counts.
            self._handed_back.setdefault(number, own)
            return own

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def fork(given: Any) -> Any:
            return tf.identity(given), back

        own = fork(value)
        self._forks[own.name] = number
        return own

    def keep(self, call: OpenCall, outputs: list[Any], shadow: list[Any]) -> None:
        super().keep(call, outputs, shadow)
        inputs = float_tensors(call.arguments)
        self._pairs.append(_Pair(call.path, call.layer, inputs, outputs, shadow))

    def _draw(self, gradients: Sequence[Any]) -> list[Any]:
        return [
            None if one is None else self._signs_of(one, index)
            for index, one in enumerate(gradients)
        ]

    def _signs_of(self, gradient: Any, index: int) -> Any:
        # The four ways of signs are for all elements, and not for those of each row.
        row = tf.reshape(gradient, [1, -1])
        return tf.reshape(random_signs(row, self.seed, self.probe, index), tf.shape(gradient))

    def _half_gradients(
        self, pair: _Pair, arriving: Mapping[str, Any], numbers: Mapping[int, int]
    ) -> dict[str | int, Any]:
        """Runs the backward pass of a unit in half precision on what arrives in float32.

        Returns:
            What arrives at its inputs, by name, and at its weights, by number.
        """
        ends = [
            (narrow, arriving[wide.name])
            for wide, narrow in zip(pair.outputs, pair.shadow, strict=True)
            if arriving.get(wide.name) is not None
        ]
        weights = {
            numbers[id(one)]: getattr(one, "value", one)
            for one in pair.layer.trainable_variables
            if id(one) in numbers
        }
        starts: dict[str | int, Any] = {one.name: one for one in pair.inputs} | weights
        if not ends or not starts:
            return {}
        found = tf.gradients(
            [narrow for narrow, _ in ends],
            list(starts.values()),
            grad_ys=[tf.cast(one * self.scale, narrow.dtype) for narrow, one in ends],
            # Of a layer that is called twice, what one takes came from the same weights.
            stop_gradients=pair.inputs,
        )
        return {
            key: tf.cast(_dense(one), tf.float32) / self.scale
            for key, one in zip(starts, found, strict=True)
            if one is not None
        }

    def _weights_of(self, pair: _Pair, numbers: Mapping[int, int]) -> list[int]:
        """Returns the numbers of a unit's weights that no other unit has as well."""
        found = [numbers[id(one)] for one in pair.layer.trainable_variables if id(one) in numbers]
        return [one for one in found if len(topmost(self._owners(one, numbers))) == 1]

    def _owners(self, number: int, numbers: Mapping[int, int]) -> set[str]:
        return {
            pair.unit
            for pair in self._pairs
            for one in pair.layer.trainable_variables
            if numbers.get(id(one)) == number
        }

    def _project_back(self, unit: str, half: Any, number: int, share: Any) -> None:
        """Adds what the error of a gradient that is handed back comes to."""
        if half is None:
            return
        difference = self._finite(unit, half - self._handed_back[number])
        self.projections.append(Projection(unit, None, by_row(share, difference)))

    def _finite(self, unit: str, difference: Any) -> Any:
        """Leaves out what is not finite, and blames the unit for it."""
        is_finite = tf.math.is_finite(difference)
        self.nonfinite[unit] = self.nonfinite.get(unit, False) | ~tf.reduce_all(is_finite)
        return tf.where(is_finite, difference, tf.zeros_like(difference))


def _dense(gradient: Any) -> Any:
    return None if gradient is None else tf.convert_to_tensor(gradient)
