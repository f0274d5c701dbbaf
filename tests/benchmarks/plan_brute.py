"""What pins really bring: every choice is run, one after the other, and nothing predicted.

A choice of pins is a float32 policy on some layers of a half-precision twin, sublayers
included, for the time of one forward pass in inference mode. That gives bit for bit what
`pin_float32` gives (see `differs_from_pinning`). An eager pass needs no tracing; a compiled
one rounds less often in bfloat16, where it adds the bias to a product before it rounds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tf_amp_kit as amp
from tf_amp_kit.formats import is_half
from tf_amp_kit.tracing.paths import LayerPaths


class Single(NamedTuple):
    """What one unit does alone.

    Attributes:
        error: The relative RMS error of the outputs with this unit alone in half.
        seconds: How long running it took.
    """

    error: float
    seconds: float


class Greedy(NamedTuple):
    """What the greedy search found.

    Attributes:
        pins: The paths to pin, in the order of the model.
        error: The relative RMS error of the outputs with them.
        num_runs: How many choices were run.
        seconds: How long that took.
        is_complete: Whether it ended by itself, and not because it had to stop.
    """

    pins: tuple[str, ...]
    error: float
    num_runs: int
    seconds: float
    is_complete: bool


def units(model: keras.Model) -> dict[str, Any]:
    """Return the layers of a Functional half model that can be pinned, by path.

    Args:
        model: The twin in half precision. Of a float32 model there are none.
    """
    paths = LayerPaths(model)
    return {
        str(paths.of(layer)): layer
        for layer in model.layers
        if not isinstance(layer, keras.layers.InputLayer)
        and is_half(layer.compute_dtype)
        and any(is_half(tensor.dtype) for tensor in keras.tree.flatten(layer.output))
    }


@contextlib.contextmanager
def in_float32(layers: Collection[Any]) -> Iterator[None]:
    """Give layers and all their sublayers a float32 policy for a `with` block."""
    before = [
        (sub, sub.dtype_policy)
        for layer in layers
        for _, sub in LayerPaths(layer)
        if is_half(sub.compute_dtype)
    ]
    float32 = keras.DTypePolicy("float32")
    try:
        for sub, _ in before:
            sub.dtype_policy = float32
        yield
    finally:
        for sub, policy in before:
            sub.dtype_policy = policy


def outputs(model: keras.Model, x: Any, *, compiled: bool = False) -> list[np.ndarray]:
    """Return what a model returns in inference mode, in float64.

    Args:
        model: The model.
        x: The inputs.
        compiled: Whether to run it in a `tf.function`, which is traced each time.
    """

    def forward(x: Any) -> Any:
        return model(x, training=False)

    run = tf.function(forward, autograph=False) if compiled else forward
    returned = keras.tree.flatten(run(tf.convert_to_tensor(x)))
    return [keras.ops.convert_to_numpy(one).astype("float64") for one in returned]


def relative_error(y: Sequence[np.ndarray], y32: Sequence[np.ndarray]) -> float:
    """Return `||y - y32|| / ||y32||` over all outputs; infinite if `y` is not finite."""
    if not all(np.isfinite(one).all() for one in y):
        return float("inf")
    difference = sum(np.square(one - two).sum() for one, two in zip(y, y32, strict=True))
    return float(np.sqrt(difference / sum(np.square(one).sum() for one in y32)))


def error_with_pins(
    twin: keras.Model,
    x: Any,
    y32: Sequence[np.ndarray],
    paths: Collection[str],
    *,
    compiled: bool = False,
) -> float:
    """Run a half twin with some units in float32, and return its relative RMS error.

    Args:
        twin: The twin in half precision; as it was afterwards.
        x: The inputs.
        y32: What the float32 model returns for them: `outputs(model, x)`.
        paths: The units in float32.
        compiled: Whether to run it in a `tf.function`.
    """
    known = units(twin)
    with in_float32([known[path] for path in paths]):
        return relative_error(outputs(twin, x, compiled=compiled), y32)


def single_errors(
    model: keras.Model,
    x: Any,
    precision: str,
    paths: Collection[str] | None = None,
    *,
    compiled: bool = False,
) -> dict[str, Single]:
    """Run a model with one unit in half at a time, and all others in float32.

    Args:
        model: The float32 model.
        x: The inputs.
        precision: The half format.
        paths: The units to run; None for all.
        compiled: Whether to run them in a `tf.function` each.
    """
    twin, y32 = amp.convert_model(model, precision), outputs(model, x, compiled=compiled)
    everything = list(units(twin))
    found = {}
    for path in everything if paths is None else paths:
        start = time.perf_counter()
        others = [one for one in everything if one != path]
        error = error_with_pins(twin, x, y32, others, compiled=compiled)
        found[path] = Single(error, time.perf_counter() - start)
    return found


def greedy(
    model: keras.Model,
    x: Any,
    precision: str,
    tolerance: float,
    *,
    candidates: Sequence[str] | None = None,
    num_candidates: int | None = None,
    max_seconds: float = float("inf"),
) -> Greedy:
    """Search pins by running every remaining unit as the next one, and keeping the best.

    As long as the error exceeds the tolerance, one more unit is pinned; afterwards those
    that are not needed are dropped, the earliest first. Where several are equally good,
    because none makes the outputs finite for one, the first candidate is taken.

    Args:
        model: The float32 model.
        x: The inputs.
        precision: The half format.
        tolerance: The largest relative RMS error of the outputs that is allowed.
        candidates: The units to choose from, the most promising first; None for all.
        num_candidates: How many of the remaining ones are run for each pin; None for all.
        max_seconds: After how long to stop pinning, whatever is reached.
    """
    start = time.perf_counter()
    twin, y32 = amp.convert_model(model, precision), outputs(model, x)
    remaining = list(units(twin) if candidates is None else candidates)
    num_runs = 0

    def error_with(paths: Collection[str]) -> float:
        nonlocal num_runs
        num_runs += 1
        return error_with_pins(twin, x, y32, paths)

    pins: list[str] = []
    error = error_with(pins)
    while error > tolerance and remaining and time.perf_counter() - start < max_seconds:
        tried = {path: error_with([*pins, path]) for path in remaining[:num_candidates]}
        best = min(tried, key=lambda path: tried[path])
        pins.append(best)
        remaining.remove(best)
        error = tried[best]
    is_complete = error <= tolerance or not remaining
    for path in tuple(pins) if error <= tolerance else ():
        without = [one for one in pins if one != path]
        error_without = error_with(without)
        if error_without <= tolerance:
            pins, error = without, error_without
    ordered = tuple(path for path in units(twin) if path in pins)
    return Greedy(ordered, error, num_runs, time.perf_counter() - start, is_complete)


def differs_from_pinning(
    model: keras.Model, x: Any, precision: str, paths: Sequence[str]
) -> tuple[float, float]:
    """Compare running a choice with `pin_float32`, and eager runs with compiled ones.

    Args:
        model: The float32 model.
        x: The inputs.
        precision: The half format.
        paths: The units in float32; at least one.

    Returns:
        The largest difference of any output from that of a twin that was pinned, which is
        to be zero; and the relative RMS error in a `tf.function`, over that of the eager run.
    """
    twin, pinned = amp.convert_model(model, precision), amp.convert_model(model, precision)
    known, y32 = units(twin), outputs(model, x)
    with in_float32([known[path] for path in paths]):
        y = outputs(twin, x)
    pins = amp.pin_float32(pinned, *paths)
    y_pinned, y_compiled = outputs(pinned, x), outputs(pinned, x, compiled=True)
    pins.undo()
    differences = [np.abs(one - two).max() for one, two in zip(y, y_pinned, strict=True)]
    return float(max(differences)), relative_error(y_compiled, y32) / relative_error(y, y32)
