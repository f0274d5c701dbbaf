"""Layers that draw random numbers, held still so that two precisions can be compared."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import keras
import tensorflow as tf

from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.reading import is_custom
from tf_amp_kit.tracing.recorder import OpenCall, map_tensors
from tf_amp_kit.tracing.step_trace import StepTrace

__all__ = ["DrawingLayers"]

# Layers that do little else than draw.
_LAYERS: Final = (
    keras.layers.Dropout,
    keras.layers.AlphaDropout,
    keras.layers.GaussianDropout,
    keras.layers.GaussianNoise,
)

# What draws random numbers, by TensorFlow's names.
_OPERATIONS: Final = ("Random", "Multinomial")


@dataclass(frozen=True)
class DrawingLayers:
    """The layers of a model that draw random numbers in a step.

    In half precision they would draw others than in float32. Those of Keras that do
    little else run in float32 in both, and hand on what that is in half.

    Attributes:
        layers: Layers of Keras that do little else than draw.
        others: The paths of what else draws; it cannot be held still.
    """

    layers: tuple[Any, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, model: Any, step: StepTrace) -> DrawingLayers:
        """Finds them in a trace.

        Args:
            model: The model, or a twin of the one that was traced.
            step: The trace.
        """
        drawing = _drawing_paths(step)
        held = {path: layer for path, layer in LayerPaths(model) if path in drawing}
        held = {path: layer for path, layer in held.items() if _only_draws(layer)}
        return cls(tuple(held.values()), tuple(sorted(drawing - set(held))))

    @property
    def with_inner(self) -> tuple[Any, ...]:
        """The layers, and those in wrappers among them, which may call them past `__call__`."""
        return tuple(inner for layer in self.layers for _, inner in LayerPaths(layer))

    def as_in_half(self, call: OpenCall, pinned: Collection[Any] = ()) -> Any:
        """Returns what a call hands on in half precision.

        Args:
            call: A call that returned.
            pinned: Layers that are in float32 for other reasons.
        """
        is_held = any(call.layer is one for one in self.layers)
        if not is_held or any(call.layer is one for one in pinned):
            return call.outputs
        dtype = call.layer.dtype_policy.compute_dtype
        return map_tensors(call.outputs, lambda value: _narrowed(value, dtype))


def _narrowed(value: Any, dtype: str) -> Any:
    return tf.cast(value, dtype) if value.dtype.is_floating else value


def _only_draws(layer: Any) -> bool:
    if isinstance(layer, keras.layers.Wrapper):
        return _only_draws(layer.layer)
    is_augmentation = type(layer).__name__.startswith("Random")
    return not is_custom(layer) and (isinstance(layer, _LAYERS) or is_augmentation)


def _drawing_paths(step: StepTrace) -> set[str]:
    hosts = (
        step.trace.host(op)
        for op in step.trace.live
        if any(name in op.type for name in _OPERATIONS) and not step.phase(op)
    )
    return {host.path for host in hosts if host is not None}
