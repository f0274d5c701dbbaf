"""One real train step by Keras itself, and what came out of it."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from .slots import Built


def loss_scale_for(precision: str) -> float:
    """Return the scale that the tests use: float16 needs one."""
    return 2.0**10 if precision == "float16" else 1.0


def run_step(
    built: Built, loss_scale: float = 1.0, *, backward: bool = True
) -> dict[str, np.ndarray]:
    """Run forward, loss, backward and metrics in a graph, in the model's own precision.

    Args:
        built: The model and its batch.
        loss_scale: What the loss is multiplied with before the backward pass.
        backward: Whether there is a backward pass.

    Returns:
        Every result as a float32 array: `output/0`, `loss`, `gradient/dense/kernel`,
        `metric/loss`, `state/seen`.
    """
    model = built.model
    variables = model.trainable_variables
    x, y, sample_weight = (*built.data, None)[:3]

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, sample_weight, training=True)
            scaled = loss * loss_scale
        gradients = tape.gradient(scaled, variables) if backward else []
        metrics = model.compute_metrics(x, y, outputs, sample_weight)
        return outputs, loss, gradients, metrics

    outputs, loss, gradients, metrics = step()
    results: dict[str, Any] = {"loss": loss}
    results |= {f"output/{n}": value for n, value in enumerate(keras.tree.flatten(outputs))}
    # Without a backward pass there are no gradients to pair with the variables.
    results |= {f"gradient/{v.path}": g for v, g in zip(variables, gradients, strict=False)}
    results |= {f"metric/{name}": value for name, value in metrics.items()}
    results |= {f"state/{v.path}": v for v in model.non_trainable_variables if _is_float(v)}
    return {name: _array(value) for name, value in results.items() if value is not None}


def nonfinite_results(results: dict[str, np.ndarray]) -> list[str]:
    """Return the names of the results that hold a NaN or an infinity."""
    return [name for name, value in results.items() if not np.isfinite(value).all()]


def _is_float(variable: Any) -> bool:
    return "float" in variable.dtype


def _array(value: Any) -> np.ndarray:
    dense = tf.convert_to_tensor(getattr(value, "value", value))
    return tf.cast(dense, tf.float32).numpy()
