"""What each layer of a model is, before any call."""

from __future__ import annotations

from typing import Any

import keras

from tf_amp_kit import _keras
from tf_amp_kit.formats import is_float, is_half
from tf_amp_kit.tracing.paths import LayerPaths, held_by, join
from tf_amp_kit.tracing.records import LayerFacts, OptimizerFacts


def layer_facts(paths: LayerPaths) -> tuple[LayerFacts, ...]:
    """Describes every layer that has a path, in the order of the paths."""
    parents = _parents(paths)
    return tuple(
        LayerFacts(
            path=path,
            parent=parents.get(path),
            layer_class=type(layer).__name__,
            is_model=isinstance(layer, keras.Model),
            policy=layer.dtype_policy.name,
            compute_dtype=layer.compute_dtype,
            own_weight_dtypes=tuple(v.dtype for v in _own_weights(layer) if is_float(v.dtype)),
            trainable_half_weights=tuple(
                v.name for v in _own_weights(layer) if v.trainable and is_half(v.dtype)
            ),
            half_regularized_weights=tuple(
                v.name
                for v in _own_weights(layer)
                if v.trainable and is_half(v.dtype) and getattr(v, "regularizer", None)
            ),
            optimizers=_optimizers(layer, path),
        )
        for path, layer in paths
    )


def _parents(paths: LayerPaths) -> dict[str, str]:
    known = {path for path, _ in paths}
    return {path: _nearest_above(path, known) for path in known if path}


def _nearest_above(path: str, known: set[str]) -> str:
    above = path
    while above:
        above = above.rpartition("/")[0]
        if above in known:
            break
    return above


def _own_weights(layer: Any) -> list[Any]:
    below = {id(v) for sub in _keras.tracked_layers(layer) for v in sub.weights}
    return [v for v in layer.weights if id(v) not in below]


def _optimizers(layer: Any, path: str) -> tuple[OptimizerFacts, ...]:
    found = []
    for place, value in held_by(layer):
        if isinstance(value, keras.optimizers.Optimizer):
            found.append(_describe(value, join(path, f"@{place}")))
    return tuple(found)


def _describe(optimizer: Any, path: str) -> OptimizerFacts:
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if scales else optimizer
    return OptimizerFacts(
        path=path,
        optimizer_class=type(optimizer).__name__,
        scales=scales or bool(getattr(optimizer, "loss_scale_factor", None)),
        half_slots=tuple(v.path for v in inner.variables if is_half(v.dtype)),
    )
