"""Everything that training changed, from a model to its twin."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import keras
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.errors import ConversionError
from tf_amp_kit.tracing.paths import LayerPaths, held_by

__all__ = ["LayerPair", "copy_state", "copy_values", "optimizer_states", "pair_layers"]

_BY_CODE: Final = (
    "Build the model by code under the new policy, and give it the weights with set_weights()."
)


class LayerPair(NamedTuple):
    """A layer, and the one that stands in its place in the twin."""

    path: str
    old: Any
    new: Any


def pair_layers(paths: LayerPaths, twin_paths: LayerPaths) -> list[LayerPair]:
    """Matches the layers of a model with those of its twin, by path.

    Args:
        paths: The model's layers.
        twin_paths: The twin's.

    Raises:
        ConversionError: If a layer with weights has no match, or one of another
            class or name.
    """
    old, new = dict(paths), dict(twin_paths)
    for path in old.keys() ^ new.keys():
        _check_has_no_weights(path, old.get(path), new.get(path))
    pairs = [LayerPair(path, layer, new[path]) for path, layer in old.items() if path in new]
    named = {id(layer) for pair in pairs for layer in _layers_by_name(pair)}
    for pair in pairs:
        if type(pair.old) is not type(pair.new) or (
            id(pair.old) in named and pair.old.name != pair.new.name
        ):
            raise ConversionError(
                f"The model's config makes another layer {pair.path!r}. "
                f"Expected {type(pair.old).__name__} {pair.old.name!r}. "
                f"Received: {type(pair.new).__name__} {pair.new.name!r}. {_BY_CODE}"
            )
    return pairs


def copy_state(pairs: list[LayerPair]) -> dict[int, Any]:
    """Copies weights, statistics, states of random seeds, vocabularies, names, `trainable`.

    Args:
        pairs: All layers of both models.

    Returns:
        The twin's variables, by the `id` of the model's own.

    Raises:
        ConversionError: If a layer of both has other weights.
    """
    twins: dict[int, Any] = {}
    for pair in pairs:
        _check_same_weights(pair)
        _load_own_state(pair)
        old, new = _states(pair.old), _states(pair.new)
        shared = [place for place in old if place in new]
        copy_values([old[place] for place in shared], [new[place] for place in shared])
        twins.update((id(old[place]), new[place]) for place in shared)
        _keras.copy_trainable(pair.old, pair.new)
        _keras.copy_call_marks(pair.old, pair.new)
        # Layers made by code have automatic names, which count on.
        pair.new.name = pair.old.name
    return twins


def copy_values(old: list[Any], new: list[Any]) -> None:
    """Copies values of variables: bit for bit in one dtype, exactly into a wider one.

    Args:
        old: Variables of Keras or TensorFlow.
        new: As many, of the same shapes.
    """
    for source, target in zip(old, new, strict=True):
        value = tf.convert_to_tensor(source.value if _is_keras(source) else source)
        target.assign(tf.cast(value, target.dtype))


def optimizer_states(optimizer: Any) -> dict[str, Any]:
    """Returns the variables of an optimizer, and of those that it holds, by place.

    The list `variables` would not do: Keras tracks a variable that `build` makes
    for itself, as Nadam's does, in an optimizer alone and not in a wrapped one.

    Args:
        optimizer: The optimizer, built.

    Returns:
        Variables by where they hang, as in `held_by`; those that hang nowhere by
        their number.
    """
    found = dict(_held_states(optimizer))
    for place, held in held_by(optimizer):
        if isinstance(held, keras.optimizers.Optimizer):
            states = optimizer_states(held)
            found.update((f"{place}/{inner}", one) for inner, one in states.items())
    known = {id(variable) for variable in found.values()}
    others = [variable for variable in optimizer.variables if id(variable) not in known]
    return {**found, **{f"@{number}": variable for number, variable in enumerate(others)}}


def _layers_by_name(pair: LayerPair) -> list[Any]:
    """Returns the layers that a config gave their names; code gives new automatic ones."""
    if not _keras.is_functional(pair.old):
        return []
    old, new = list(pair.old.layers), list(pair.new.layers)
    return old if {one.name for one in old} == {one.name for one in new} else []


def _check_has_no_weights(path: str, old: Any, new: Any) -> None:
    layer = new if old is None else old
    if _keras.own_variables(layer):
        raise ConversionError(
            f"The model's config makes {'another' if old is None else 'no'} layer {path!r} of "
            f"class {type(layer).__name__}. Expected the layers that the model has: get_config() "
            f"and from_config() have to tell of them all. {_BY_CODE}"
        )


def _check_same_weights(pair: LayerPair) -> None:
    shapes = [
        [(_given_name(one), tuple(one.shape)) for one in _keras.own_variables(layer)]
        for layer in (pair.old, pair.new)
    ]
    if shapes[0] != shapes[1]:
        raise ConversionError(
            f"The config of layer {pair.path!r} of class {type(pair.old).__name__} makes other "
            f"weights. Expected {shapes[0]}. Received: {shapes[1]}. "
            "Let its get_config() tell of all that its weights depend on, and build() make them "
            f"all. {_BY_CODE}"
        )


def _given_name(variable: Any) -> str:
    """Returns a variable's name, without the count of an automatic one."""
    return re.sub(r"^variable(_\d+)?$", "variable", variable.name)


def _load_own_state(pair: LayerPair) -> None:
    """Lets layers that keep more than variables, or derive it from them, do so."""
    if type(pair.old).load_own_variables is not keras.layers.Layer.load_own_variables:
        store: dict[str, Any] = {}
        pair.old.save_own_variables(store)
        if store:
            pair.new.load_own_variables({key: _plain(value) for key, value in store.items()})
    if hasattr(pair.old, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            pair.old.save_assets(folder)
            pair.new.load_assets(folder)


def _states(layer: Any) -> dict[str, Any]:
    """Returns a layer's own variables, seed states and TensorFlow variables, by place."""
    own = enumerate(_keras.own_variables(layer))
    found: dict[str, Any] = {f"@{number}": variable for number, variable in own}
    known = {id(variable) for variable in found.values()}
    found.update((place, one) for place, one in _held_states(layer) if id(one) not in known)
    return found


def _held_states(layer: Any) -> Iterator[tuple[str, Any]]:
    for place, value in held_by(layer):
        is_generator = isinstance(value, keras.random.SeedGenerator | tf.random.Generator)
        one = value.state if is_generator else value
        # Keras does not track all: a stateful RNN's states are only held.
        if isinstance(one, tf.Variable | keras.Variable) or is_generator:
            yield place, one


def _is_keras(variable: Any) -> bool:
    return isinstance(variable, keras.Variable)


def _plain(value: Any) -> Any:
    return keras.ops.convert_to_tensor(value.value) if _is_keras(value) else value
