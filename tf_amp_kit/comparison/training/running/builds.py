"""Building the model of one precision, with the weights that all of them start from."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from numpy.typing import NDArray

from tf_amp_kit import _keras
from tf_amp_kit.comparison.training.candidates import Candidate
from tf_amp_kit.data import Batch
from tf_amp_kit.errors import ModelError
from tf_amp_kit.inspection.expected import computes_in
from tf_amp_kit.precision.pinning.pin import pin_float32
from tf_amp_kit.precision.state import entered
from tf_amp_kit.tracing.facts import layer_facts
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import build_by_step

__all__ = ["Builder", "Weights", "check_own", "set_weights"]

Weights = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Builder:
    """Makes the model of each precision.

    Attributes:
        build_fn: Takes no arguments and returns a compiled model.
        pin: Whether what each level keeps in float32 is pinned.
    """

    build_fn: Callable[[], keras.Model]
    pin: bool

    @contextlib.contextmanager
    def model(
        self, candidate: Candidate, seed: int, batch: Batch, weights: Weights | None = None
    ) -> Iterator[Any]:
        """Builds a model, and keeps its precision and seed for a `with` block.

        Args:
            candidate: The precision.
            seed: Seeds everything random, in the block too.
            batch: An example, for models that are built by their data.
            weights: What the weights become; None leaves those of the builder.

        Raises:
            ModelError: If the builder returns no compiled Keras model, if its weights have
                other shapes than the given ones, or if nothing in it computes in the
                candidate's precision.
            PinError: If the pins are of another model.
        """
        with entered(candidate.state), _keras.seeded(seed), _retracing_expected():
            model = check_keras_model(self.build_fn(), argument="build_fn()")
            _check_compiled(model)
            build_by_step(model, tuple(batch))
            _check_precision(model, candidate)
            if weights is not None:
                set_weights(model, weights)
            if self._pins(candidate):
                pin_float32(model, inputs=batch.x)
            yield model

    def _pins(self, candidate: Candidate) -> bool:
        state = candidate.state
        is_mixed = not candidate.is_float32 and state.level != "O3"
        return is_mixed and (self.pin or state.pins is not None)


def set_weights(model: Any, weights: Weights) -> None:
    """Gives a model weights that another build had.

    Raises:
        ModelError: If the shapes differ.
    """
    shapes = [tuple(one.shape) for one in model.weights]
    expected = [tuple(one.shape) for one in weights]
    if shapes != expected:
        raise ModelError(
            "The builder gives other weights each time. Expected the shapes of the first build, "
            f"{_shown(expected, shapes)}. Received: {_shown(shapes, expected)}. Take sizes from "
            "constants, not from random numbers or counters."
        )
    model.set_weights(weights)


def _shown(shapes: Sequence[Any], others: Sequence[Any]) -> str:
    """Shows the first shape that is another one there, and how many there are."""
    pairs = enumerate(zip(shapes, others, strict=False))
    first = next((i for i, (one, other) in pairs if one != other), min(len(shapes), len(others)))
    shown = shapes[first] if first < len(shapes) else "nothing"
    return f"{shown} for weight {first + 1} of {len(shapes)}"


def check_own(model: Any, other: Any) -> None:
    """Refuses a model that shares its state with one of another call of the builder.

    Args:
        model: What the builder returned.
        other: What it returned before.

    Raises:
        ModelError: If both are the same model, or have the same optimizer.
    """
    if model is other:
        raise ModelError(
            "The builder returns the same model each time, which is trained already then. "
            f"Expected a new one. Received: {model.name!r} twice. Build the layers inside of it."
        )
    if _innermost(model.optimizer) is _innermost(other.optimizer):
        raise ModelError(
            "The builder compiles each model with the same optimizer, which belongs to one model. "
            f"Expected a new one. Received: {model.optimizer!r} twice. Make it inside the builder."
        )


def _innermost(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)


def _check_compiled(model: Any) -> None:
    if not model.compiled:
        raise ModelError(
            "The model is not compiled. Expected a builder that compiles it. "
            f"Received: {type(model).__name__} named {model.name!r}. Call its compile() in the "
            "builder."
        )
    replicas = model.distribute_strategy.num_replicas_in_sync if _has_strategy(model) else 1
    if replicas > 1:
        raise ModelError(
            f"The model is made for {replicas} replicas, and a comparison runs on one. Expected a "
            f"builder without a tf.distribute strategy. Received: {model.name!r} of a "
            f"{type(model.distribute_strategy).__name__}."
        )


def _has_strategy(model: Any) -> bool:
    return getattr(model, "distribute_strategy", None) is not None


def _check_precision(model: Any, candidate: Candidate) -> None:
    facts = layer_facts(LayerPaths(model))
    precision = candidate.state.precision
    if computes_in(precision, facts):
        return
    used = sorted({one.compute_dtype for one in facts if one.own_weight_dtypes})
    raise ModelError(
        f"No layer with weights computes in {precision}, although the builder was called under "
        f"it: there is nothing to compare. Received: {model.name!r}, which computes in "
        f"{', '.join(used) or 'no precision at all'}. Leave dtypes and policies out of the "
        "builder."
    )


@contextlib.contextmanager
def _retracing_expected() -> Iterator[None]:
    """Keeps TensorFlow from advice against tracing often: each build is a model of its own."""
    logger = tf.get_logger()

    def is_other(record: logging.LogRecord) -> bool:
        return "triggered tf.function retracing" not in record.getMessage()

    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)
