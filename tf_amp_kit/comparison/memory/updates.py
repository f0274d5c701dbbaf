"""The optimizer's own code as a part of a traced train step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from tf_amp_kit import _keras
from tf_amp_kit.comparison.memory.state import BuiltOptimizer, WeightSpec
from tf_amp_kit.tracing.paths import LayerPaths, variable_paths
from tf_amp_kit.tracing.step_phases import StepTensors
from tf_amp_kit.tracing.step_trace import StepTrace
from tf_amp_kit.tracing.user_code import USER_CODE_ERRORS

__all__ = ["Update", "keys_of"]

_Name = TypeVar("_Name")


class Update:
    """Adds the update of the weights to a step; to be its `Observers.on_update`.

    The optimizer and what it updates are stand-ins without memory.

    Args:
        model: The model.
        optimizer: An optimizer, which stays as it is.
        weights: The model's weights.
    """

    def __init__(self, model: Any, optimizer: Any, weights: Sequence[WeightSpec]) -> None:
        self._paths = {id(one): path for one, path in variable_paths(LayerPaths(model))}
        self._built = BuiltOptimizer.of(optimizer, weights)
        #: The size of each of the optimizer's variables in bytes.
        self.slot_sizes = self._built.slot_sizes
        #: What the optimizer's code raised when it was traced, or None.
        self.error: Exception | None = None

    def __call__(self, step: StepTensors) -> None:
        """Traces the update into the graph that is being made."""
        stand_ins = self._built.weights
        pairs = [
            (gradient, stand_ins[self._paths[id(variable)]])
            for variable, gradient in step.gradients
            if self._paths.get(id(variable)) in stand_ins
        ]
        try:
            # What there is to warn of, `fit` says.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._built.optimizer.apply(*map(list, zip(*pairs, strict=True)))
        except USER_CODE_ERRORS as error:
            self.error = error

    def aliases(self, step: StepTrace, keys: Mapping[str, int]) -> dict[int, int]:
        """Returns the keys of weights by those of their stand-ins in a step.

        Args:
            step: The step.
            keys: The keys of the weights by their paths.
        """
        found = keys_of(step, self._built.weights.items())
        return {key: keys[path] for path, key in found.items() if path in keys}

    def slots(self, step: StepTrace) -> dict[int, int]:
        """Returns the sizes in bytes of the optimizer's variables by their keys in a step."""
        found = keys_of(step, enumerate(self._built.optimizer.variables))
        return {key: self.slot_sizes[number] for number, key in found.items()}


def keys_of(step: StepTrace, variables: Iterable[tuple[_Name, Any]]) -> dict[_Name, int]:
    """Finds those of some variables that a step uses, as the numbers of their handles.

    Args:
        step: The step.
        variables: Pairs of any name and a `keras.Variable`.
    """
    inside = _keras.captured_by_outside(step.reader.graph)
    handles = {
        name: next(
            (inside[id(one)] for one in _keras.handles_of(variable.value) if id(one) in inside),
            None,
        )
        for name, variable in variables
    }
    numbers = {name: step.reader.number(handle) for name, handle in handles.items()}
    return {name: number for name, number in numbers.items() if number is not None}
