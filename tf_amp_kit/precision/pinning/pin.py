"""The one call that keeps the sensitive layers of a model in float32."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras

from tf_amp_kit.formats import is_half
from tf_amp_kit.precision import state
from tf_amp_kit.precision.pinning import registry
from tf_amp_kit.precision.pinning.applying import set_pins
from tf_amp_kit.precision.pinning.candidates import Candidates, find_candidates
from tf_amp_kit.precision.pinning.effects import cannot_harm, trace_model
from tf_amp_kit.precision.pinning.pins import Pins
from tf_amp_kit.precision.pinning.targets import resolve
from tf_amp_kit.precision.request import DEFAULT_LEVEL
from tf_amp_kit.precision.results import CastsResults
from tf_amp_kit.tracing.model_check import check_keras_model
from tf_amp_kit.tracing.model_trace import ModelTrace
from tf_amp_kit.tracing.paths import LayerPaths

__all__ = ["kept_in_float32", "missing_pins", "pin_float32"]


def pin_float32(
    model: keras.Model,
    *targets: str | type[keras.layers.Layer] | keras.layers.Layer,
    sensitive: bool = True,
    inputs: Any = None,
) -> Pins:
    """Keeps layers of a built or loaded model in float32, without rebuilding it.

    Call it after a half-precision model is built, before it trains. Without targets
    it pins what `enable_amp` was told: its `pins`, else what its level says, O1 if
    there is none. O2 pins the head of each output: the last layers with weights
    before it and all that runs after them, sigmoids and softmaxes whose gradient
    would vanish, and layers that add a loss in half precision, which `fit` refuses.
    O1 pins in addition what a trace shows to run sensitive operations in half
    precision, and what scales raw inputs. A layer is left in half if its float32
    result would make code around it fail, or a matrix product run in float32; the
    `remarks` say so. A second call answers for what the first one pinned, and for
    pins that came with a file.

    Sublayers follow. Weights, optimizer and compiled losses stay. The next `fit`,
    `evaluate` or `predict` traces anew; a `tf.function` of your own, or a model
    around this one, does not by itself.

    Args:
        model: A Keras model. Its layers may be unbuilt if targets are given.
        *targets: Layers of the model, layer classes, or layer paths, as the audit
            shows them, or patterns: regular expressions that have to match whole
            layer paths, `"encoder/.*"`. With targets, only these are pinned; a
            second call adds to the first.
        sensitive: Without targets: whether O1 pins sensitive layers too. False
            pins as O2 does.
        inputs: Example inputs, only for a model that does not know its own.

    Returns:
        `Pins`. Print it to see what was pinned and why; `undo()`, `save(path)`.

    Raises:
        PinError: If a target matches no layer, if a layer stores its variables in
            half precision, or if code around a target cannot take float32.
        ModelError: If it is not a Keras 3 model; without targets, not built.
        InputsError: If the inputs are unknown, or do not fit the model.

    Example:

    >>> model = keras.Sequential(
    ...     [
    ...         keras.Input((4,)),
    ...         keras.layers.Dense(8, name="body", dtype="mixed_bfloat16"),
    ...         keras.layers.Dense(1, activation="sigmoid", name="head", dtype="mixed_bfloat16"),
    ...     ],
    ...     name="net",
    ... )
    >>> print(pin_float32(model))
    Pinned in float32: 1 layer of 'net'
    <BLANKLINE>
    Layer  Class  Why                   In a file
    -----------------------------------------------
    head   Dense  sigmoid of an output  plain Keras
    """
    check_keras_model(model)
    if targets:
        return Pins.of(model, set_pins(model, resolve(LayerPaths(model), targets), inputs=inputs))
    asked = state.current()
    if asked is not None and asked.pins is not None:
        return asked.pins.apply(model, inputs=inputs)
    traces = trace_model(model, inputs)
    candidates, level = find_candidates(traces[-1]), asked.level if asked else DEFAULT_LEVEL
    reasons = candidates.at_level(level, sensitive=sensitive)
    look = not cannot_harm(traces[-1], reasons)
    outcome = set_pins(model, reasons, is_named=False, look=look, traces=traces, inputs=inputs)
    pins = Pins.of(model, outcome)
    registry.note_left(model, [path for path in reasons if path not in pins.paths])
    return replace(pins, remarks=(*pins.remarks, *_unpinned(candidates, pins, level)))


def kept_in_float32(paths: LayerPaths) -> tuple[str, ...]:
    """Returns the paths of what is float32 on purpose: pinned, or a wrapper of ours."""
    wrappers = tuple(path for path, layer in paths if isinstance(layer, CastsResults))
    return registry.pinned_paths(paths) + wrappers


def missing_pins(model: Any, trace: ModelTrace, asked: state.AmpState) -> tuple[str, ...]:
    """Returns the paths of layers that were asked for in float32, and are half.

    Args:
        model: The model.
        trace: A trace of it with `training=True`.
        asked: What was asked for.
    """
    if asked.pins is None:
        left = registry.left_in_half(model)
        wanted = find_candidates(trace).at_level(asked.level)
        return tuple(path for path in wanted if path not in left)
    half = {facts.path for facts in trace.layers if is_half(facts.compute_dtype)}
    return tuple(path for path in asked.pins.paths if path in half)


def _unpinned(candidates: Candidates, pins: Pins, level: str) -> Iterator[str]:
    if level == "O1":
        for path, why in candidates.left.items():
            if path not in pins.paths:
                yield f"Left in half: {path} {why}."
    if not pins.pins and not pins.remarks:
        yield f"Nothing to pin at level {level}."
