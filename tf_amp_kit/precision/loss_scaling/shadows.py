"""Copies of what the forward pass updates, to go back to when a step is skipped.

Moving statistics are updated before anyone knows whether the gradients are
finite. A shadow holds a variable's value from after the last applied step. All
optimizers that protect a variable share one shadow of it, so that each of them
sees what the steps of the others left behind.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import ModelError
from tf_amp_kit.formats import is_float
from tf_amp_kit.tracing.paths import LayerPaths, held_by

__all__ = ["Protection", "Shadows", "flattened", "own_state", "variables_of"]


class _Shadow:
    """A variable and its copy; one per variable and process."""

    def __init__(self, variable: Any, strategy: Any) -> None:
        self.variable = variable
        native = _native(variable)
        with strategy.scope():
            # The value comes with the first refresh, for each replica its own.
            self.copy = tf.Variable(
                tf.zeros(native.shape, native.dtype),
                trainable=False,
                synchronization=native.synchronization,
                aggregation=native.aggregation,
                name="shadow",
            )


# By the variable's id, which stays taken as long as its shadow lives.
_shared: Final[weakref.WeakValueDictionary[int, _Shadow]] = weakref.WeakValueDictionary()


class Shadows:
    """The shadows that one optimizer keeps up to date."""

    def __init__(self) -> None:
        self._shadows: dict[int, _Shadow] = {}

    def __contains__(self, variable: object) -> bool:
        return id(variable) in self._shadows

    def summary(self, num_new: int) -> Protection:
        """Tells how much is protected."""
        sizes = [
            int(shadow.copy.shape.num_elements()) * shadow.copy.dtype.size
            for shadow in self._shadows.values()
        ]
        return Protection(len(sizes), sum(sizes), num_new)

    def add(self, variables: Iterable[Any], strategy: Any) -> int:
        """Takes variables on, and returns how many are new; their values come later."""
        num_before = len(self._shadows)
        for variable in variables:
            shadow = _shared.get(id(variable))
            if shadow is None:
                shadow = _shared[id(variable)] = _Shadow(variable, strategy)
            self._shadows[id(variable)] = shadow
        return len(self._shadows) - num_before

    def refresh(self, strategy: Any) -> None:
        """Copies the variables' present values; in cross-replica context."""
        self.settle(strategy, tf.constant(True))

    def settle(self, strategy: Any, is_applied: Any) -> None:
        """Makes a variable and its shadow agree; in cross-replica context.

        Args:
            strategy: The strategy that the variables belong to.
            is_applied: A bool scalar: whether the variable is right after this
                step, or the shadow.
        """

        is_being_traced = not tf.executing_eagerly()
        with tf.init_scope():
            # While a step is traced nothing of it has run, so what is there now is
            # what was there before it, whoever loaded it meanwhile.
            if is_being_traced and tf.executing_eagerly():
                self.refresh(strategy)

        def agree(variable: Any, shadow: Any) -> None:
            kept = tf.where(is_applied, variable, shadow)
            variable.assign(kept)
            shadow.assign(kept)

        for one in self._shadows.values():
            variable = _native(one.variable)
            # What the step did not write needs nothing back. To give it what was
            # there after the last step would undo what came between, such as
            # what a train step updates after the optimizer.
            if _keras.may_be_written(variable):
                strategy.extended.update(variable, agree, args=(one.copy,), group=False)


@dataclass(frozen=True)
class Protection:
    """What an optimizer protects: how many variables, and what the copies take.

    Args:
        num_variables: Variables that have a shadow.
        size_bytes: Memory of the shadows, on each replica.
        num_new: Variables that had none before.

    Example:

    >>> print(Protection(106, 212_480))
    106 variables protected, 212480 bytes of copies
    """

    num_variables: int
    size_bytes: int
    num_new: int = 0

    def __str__(self) -> str:
        return f"{self.num_variables} variables protected, {self.size_bytes} bytes of copies"


def own_state(layer: Any) -> list[Any]:
    """Lists a layer's own float variables that its forward pass may update.

    These are the ones created as not trainable. Weights of a frozen layer are
    none of them: nothing but an optimizer would change those. Two kinds of
    Keras's layers are different: SpectralNormalization writes the kernel, too,
    and stateful RNNs keep their states where no list of variables has them.
    """
    variables = _keras.own_non_trainable_variables(layer)
    # Variables of TensorFlow itself, which no list of Keras's has.
    held = [value for _, value in held_by(layer) if isinstance(value, tf.Variable)]
    variables.extend(one for one in held if not one.trainable)
    if isinstance(layer, keras.layers.SpectralNormalization) and layer.built:
        variables.append(layer.kernel)
    if isinstance(layer, keras.layers.RNN) and layer.stateful:
        variables.extend(keras.tree.flatten(layer.states or ()))
    return [v for v in variables if is_float(tf.as_dtype(v.dtype).name)]


def flattened(targets: Iterable[Any]) -> list[Any]:
    """Takes lists inside lists apart.

    Raises:
        ModelError: If something is no model, layer or variable.
    """
    flat: list[Any] = []
    for target in targets:
        if isinstance(target, list | tuple):
            flat.extend(flattened(target))
        elif isinstance(target, keras.layers.Layer | keras.Variable | tf.Variable):
            flat.append(target)
        else:
            raise ModelError(
                "Expected a model, a layer, a variable or a list of these to protect. "
                f"Received: {type(target).__name__}."
            )
    return flat


def variables_of(target: Any) -> list[Any]:
    """Turns what a user names into variables.

    Args:
        target: A variable, or a model or layer. A model counts as built if some
            layer of it is: one with two networks is never called as a whole.

    Returns:
        The variable, or those that the forward pass may update.

    Raises:
        ModelError: If nothing of a model is built.
    """
    if not isinstance(target, keras.layers.Layer):
        return [target]
    layers = [layer for _, layer in LayerPaths(target)]
    if not any(layer.built and layer.variables for layer in layers) and not target.built:
        raise ModelError(
            f"{target.name!r} has no variables to protect yet. Expected a built model. "
            "Call it once on a batch, or call its build() first."
        )
    return [variable for layer in layers for variable in own_state(layer)]


def _native(variable: Any) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable
