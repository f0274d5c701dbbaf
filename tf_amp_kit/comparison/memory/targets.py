"""What targets look like where only the model is known."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_amp_kit.data import with_fixed_shape
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS

__all__ = ["guessed_targets"]


def guessed_targets(model: Any, x: Any, loss: Any) -> Any:
    """Guesses targets: like the outputs, or class numbers where a loss is a sparse one.

    Args:
        model: The model.
        x: The specs of its inputs.
        loss: The loss that is asked for; None for the compiled one.

    Returns:
        Specs in the structure of the outputs.
    """
    step = trace_step(model, (with_fixed_shape(x, 2),), until=OUTPUTS)
    shapes = {key: step.trace.tensors[one].shape for key, one in step.model_outputs.items()}
    losses = getattr(model, "loss", None) if loss is None else loss
    specs = {
        key: _spec(shape, _loss_of(losses, key, position))
        for position, (key, shape) in enumerate(shapes.items())
    }
    if len(specs) == 1:
        return next(iter(specs.values()))
    if all(key.isdigit() for key in specs):
        return list(specs.values())
    return specs


def _loss_of(losses: Any, key: str, position: int) -> Any:
    if isinstance(losses, dict):
        return losses.get(key, list(losses.values())[min(position, len(losses) - 1)])
    if isinstance(losses, list | tuple):
        return losses[min(position, len(losses) - 1)]
    return losses


def _spec(shape: tuple[int | None, ...] | None, loss: Any) -> tf.TensorSpec:
    names = (loss, getattr(loss, "name", ""), getattr(loss, "__name__", ""), type(loss).__name__)
    is_sparse = any("sparse" in str(name).lower() for name in names)
    inner = [] if shape is None else list(shape[1:])
    if is_sparse:
        return tf.TensorSpec([None, *inner[:-1]], tf.int32)
    return tf.TensorSpec([None, *inner], tf.float32)
