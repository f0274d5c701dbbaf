"""Where a fault can stand in a clean model, and the parts that all models share.

Every builder takes `Slots`, which are empty for the clean model. It calls `after`
behind each of its layers, makes its head with `head`, its cells with `cell_for`
and compiles with `finish`: so one fault can be put at any of these places, and
nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers

BATCH = 4
WIDTH = 8
LENGTH = 6
CLASSES = 3


class Built(NamedTuple):
    """A compiled model, and one batch `(x, y[, sample_weight])` for it."""

    model: keras.Model
    data: tuple[Any, ...]


@dataclass
class Slots:
    """What stands in the slots of a model.

    Attributes:
        layer: Makes a layer that keeps its input's shape; takes `name=`.
        place: The layer behind which it comes; for a cell, the layer around it.
        cell: Makes a recurrent cell; takes the units.
        loss: A loss in place of the model's own.
        metric: A metric to compile the model with.
        weight_regularizer: A regularizer of the head's kernel.
        activity_regularizer: A regularizer of the head's output.
        seen: The places that a layer could have come behind, filled by building.
        cells: The places of the cells, filled by building.
    """

    layer: Callable[..., layers.Layer] | None = None
    place: str = ""
    cell: Callable[[int], layers.Layer] | None = None
    loss: Any = None
    metric: Any = None
    weight_regularizer: Any = None
    activity_regularizer: Any = None
    seen: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)

    def at(self, place: str) -> layers.Layer:
        """Return the layer that comes behind another: the fault, or one that does nothing."""
        return self._planted(place) or layers.Identity(name=path_after(place))

    def after(self, place: str, tensor: Any) -> Any:
        """Put the fault behind a layer's tensor, if this is its place."""
        layer = self._planted(place)
        return tensor if layer is None else layer(tensor)

    def _planted(self, place: str) -> layers.Layer | None:
        self.seen.append(place)
        if self.layer is None or place != self.place:
            return None
        return self.layer(name=path_after(place))

    def cell_for(self, place: str, clean: Callable[[int], layers.Layer], units: int) -> Any:
        """Make the cell of a recurrent layer."""
        self.cells.append(place)
        faulty = self.cell is not None and place == self.place
        return self.cell(units) if faulty else clean(units)

    def head(self, units: int = CLASSES, name: str = "head") -> layers.Dense:
        """Make a float32 head; the one of this name carries the regularizers."""
        if name != "head":
            return layers.Dense(units, dtype="float32", name=name)
        return layers.Dense(
            units,
            dtype="float32",
            name=name,
            kernel_regularizer=self.weight_regularizer,
            activity_regularizer=self.activity_regularizer,
        )

    @property
    def metrics(self) -> list[Any]:
        return [] if self.metric is None else [self.metric]

    def compile(self, model: keras.Model) -> keras.Model:
        """Compile for labels, with the loss and the metric that stand in the slots."""
        usual = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", self.loss or usual, metrics=self.metrics)
        return model

    def finish(self, inputs: Any, features: Any, x: Any) -> Built:
        """Make a model of vectors: a head, a loss from logits, and labels."""
        model = keras.Model(inputs, self.head()(features))
        return Built(self.compile(model), (x, labels()))


def path_after(place: str) -> str:
    """Return the path of a layer planted behind another."""
    return f"after_{place}"


def values(*shape: int) -> np.ndarray:
    """Return a batch of small numbers of both signs, the same in every call."""
    return np.random.default_rng(3).normal(size=(BATCH, *shape)).astype("float32")


def labels() -> np.ndarray:
    return np.arange(BATCH, dtype="int32") % CLASSES
