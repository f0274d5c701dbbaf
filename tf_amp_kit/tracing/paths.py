"""One definition of a layer's path, joinable across builds and processes.

A path is the chain from the model down: in Functional and Sequential models the
layer's name, elsewhere the attribute that it hangs on, with index or key, as in
`blocks/0/attention/softmax`. Automatic names are normalised to class and
position (`dense`, `dense_1`), because Keras counts them up from build to build.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import keras

from tf_amp_kit import _keras

__all__ = ["LayerPaths", "auto_name", "is_below", "join", "variable_paths"]

ROOT: Final = ""


class LayerPaths:
    """The paths of all layers that can be reached from a model.

    Args:
        model: A Keras model or layer. Its own path is the empty string.

    Example:

    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> [path for path, layer in LayerPaths(model)]
    ['', 'dense']
    """

    def __init__(self, model: Any) -> None:
        self._paths: dict[int, str] = {}
        self._layers: dict[str, Any] = {}
        self._add(model, ROOT)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._layers.items())

    def __getitem__(self, path: str) -> Any:
        return self._layers[path]

    def of(self, layer: Any) -> str | None:
        """Returns a layer's path, or None if it hangs nowhere."""
        return self._paths.get(id(layer))

    def copy(self) -> LayerPaths:
        """Returns paths of their own, so that strays of one trace stay there."""
        twin = LayerPaths.__new__(LayerPaths)
        twin._paths, twin._layers = dict(self._paths), dict(self._layers)
        return twin

    def add_stray(self, layer: Any, owner: str) -> str:
        """Gives a path to a layer that only its call revealed.

        Args:
            layer: A layer created inside `call`, or held where no walk looks.
            owner: The path of the layer that called it.

        Returns:
            The new path, below the owner's.
        """
        return self._add(layer, self._free(join(owner, _segment(layer))))

    def _add(self, layer: Any, path: str) -> str:
        self._paths[id(layer)] = path
        self._layers[path] = layer
        for segment, sublayer in _children(layer):
            if id(sublayer) not in self._paths:
                self._add(sublayer, self._free(join(path, segment)))
        return path

    def _free(self, path: str) -> str:
        candidate, count = path, 1
        while candidate in self._layers:
            count += 1
            candidate = f"{path}#{count}"
        return candidate


def join(owner: str, segment: str) -> str:
    """Joins a path and a segment; the model's own path is empty.

    Example:

    >>> join("", "dense"), join("block", "dense")
    ('dense', 'block/dense')
    """
    return f"{owner}/{segment}" if owner else segment


def is_below(path: str, above: str) -> bool:
    """Tells whether a path is another one, or hangs below it.

    Example:

    >>> is_below("block/dense", "block"), is_below("blocks", "block"), is_below("dense", "")
    (True, False, True)
    """
    return not above or path == above or path.startswith(f"{above}/")


def auto_name(class_name: str) -> str:
    """Returns the name that Keras derives from a class, without its number.

    Example:

    >>> auto_name("Conv2DTranspose"), auto_name("LSTM")
    ('conv2d_transpose', 'lstm')
    """
    name = re.sub(r"\W+", "", class_name)
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _segment(layer: Any) -> str:
    automatic = auto_name(type(layer).__name__)
    is_automatic = re.fullmatch(rf"{re.escape(automatic)}(_\d+)?", layer.name)
    return automatic if is_automatic else str(layer.name)


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields the direct sublayers with their segments, some of them twice."""
    if _keras.is_functional(layer):
        yield from _numbered(layer.layers)
    for place, value in held_by(layer):
        if isinstance(value, keras.layers.Layer) and not _is_input(value):
            yield place, value
    yield from _numbered(_keras.tracked_layers(layer))


def _is_input(layer: Any) -> bool:
    return isinstance(layer, keras.layers.InputLayer)


def _numbered(layers: list[Any]) -> Iterator[tuple[str, Any]]:
    # Numbers stand for the position among the layers of one class.
    counts: Counter[str] = Counter()
    for layer in layers:
        if _is_input(layer):
            continue
        segment = _segment(layer)
        position = counts[segment]
        counts[segment] += 1
        yield (f"{segment}_{position}" if position else segment), layer


def held_by(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yields what hangs on a layer, and all that containers among it hold.

    Args:
        layer: A layer, or an optimizer. What Keras keeps for its own bookkeeping
            is left out.

    Yields:
        Pairs of a place, `blocks/0` for example, and a value; containers come
        before what they hold, and each object once.
    """
    seen: set[int] = set()
    attributes = list(vars(layer).items())
    pending = [
        (name.lstrip("_"), value)
        for name, value in reversed(attributes)
        if not _keras.is_bookkeeping(layer, name)
    ]
    while pending:
        place, value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield place, value
        if isinstance(value, Mapping):
            items: Any = value.items()
        else:
            items = enumerate(value) if isinstance(value, list | tuple | set) else ()
        pending.extend((f"{place}/{key}", item) for key, item in reversed(list(items)))


def variable_paths(paths: LayerPaths) -> list[tuple[Any, str]]:
    """Returns the path of each variable of a model: its innermost owner's, and its name.

    Args:
        paths: The paths of the model's layers.

    Returns:
        Each `keras.Variable` with its path: weights, and the state of metrics and seeds.
    """
    names: dict[int, tuple[Any, str]] = {}
    for path, layer in paths:  # from the model down: the innermost owner names it last
        for variable in layer.variables:
            names[id(variable)] = variable, join(path, variable.name)
    return list(names.values())
