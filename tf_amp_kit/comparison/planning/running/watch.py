"""How large the numbers are that units take and return, and where they stop being finite."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tf_amp_kit import _keras
from tf_amp_kit.tracing.recorder import OpenCall

__all__ = ["Extremes", "Watch", "is_unit_call"]


@dataclass(frozen=True)
class Extremes:
    """What was seen of one call of a unit.

    Attributes:
        path: The unit's path.
        largest: The largest finite magnitude among what it took and returned.
        took_finite: Whether all that it took was finite.
        returned_finite: Whether all that it returned was.
    """

    path: str
    largest: float
    took_finite: bool
    returned_finite: bool


def is_unit_call(call: OpenCall, paths: Collection[str] | None) -> bool:
    """Tells whether a call is one of a unit, in the open, and no rehearsal of Keras's.

    Args:
        call: The call.
        paths: The units; None if all layers may be some.
    """
    is_meant = (
        call.path in paths if paths is not None else isinstance(call.layer, keras.layers.Layer)
    )
    return is_meant and not call.is_in_body and not _keras.is_only_inferring_shapes()


class Watch:
    """Looks at what units take and return while a step is traced.

    Args:
        paths: The units; None to look at all layers.
        magnitudes: Whether to look at magnitudes too; otherwise they are 0.
    """

    def __init__(self, paths: Collection[str] | None, *, magnitudes: bool = True) -> None:
        self._units, self._magnitudes = paths, magnitudes
        self._paths: list[str] = []
        self._seen: list[Any] = []

    @property
    def is_looking(self) -> bool:
        """Whether there is anything to look at."""
        return self._units is None or bool(self._units)

    def on_outputs(self, call: OpenCall) -> Any:
        """Adds what is to be seen of a call to the graph."""
        if is_unit_call(call, self._units):
            sides = [float_tensors(one) for one in (call.arguments, call.outputs)]
            self._paths.append(call.path)
            largest = _largest([*sides[0], *sides[1]]) if self._magnitudes else tf.zeros(())
            self._seen.append(tf.stack([largest, *map(_zero_if_finite, sides)]))
        return call.outputs

    def tensor(self) -> Any:
        """Returns all that was seen as one tensor; to be asked for while the graph is open."""
        return tf.stack(self._seen) if self._seen else tf.zeros((0, 3))

    def extremes(self, values: NDArray[Any]) -> list[Extremes]:
        """Reads what a run made of that tensor, in the order of the calls."""
        return [
            Extremes(path, float(row[0]), row[1] == 0, row[2] == 0)
            for path, row in zip(self._paths, np.asarray(values), strict=True)
        ]


def float_tensors(structure: Any) -> list[Any]:
    """Returns the float tensors in a structure."""
    leaves = tf.nest.flatten(structure, expand_composites=True)
    return [one for one in leaves if isinstance(one, tf.Tensor) and one.dtype.is_floating]


def _largest(tensors: list[Any]) -> Any:
    zero = tf.zeros((), tf.float32)
    wide = [tf.cast(one, tf.float32) for one in tensors]
    return tf.reduce_max([zero, *(_largest_finite(one) for one in wide)])


def _largest_finite(wide: Any) -> Any:
    # Of nothing at all the largest is minus infinity.
    finite = tf.where(tf.math.is_finite(wide), tf.abs(wide), tf.zeros_like(wide))
    return tf.reduce_max(finite)


def _zero_if_finite(tensors: list[Any]) -> Any:
    """Returns 0, or NaN if anything is NaN or infinite: of few operations, as it is for all."""
    zeros = [tf.cast(tf.reduce_sum(one * 0), tf.float32) for one in tensors]
    return tf.add_n(zeros) if zeros else tf.zeros(())
