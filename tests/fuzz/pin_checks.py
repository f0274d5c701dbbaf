"""What pins must do to a model, and take back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.eager import HALF, EagerRun, seen_eagerly, tensors_in
from tf_amp_kit.errors import AmpError
from tf_amp_kit.precision.pinning.pin import pin_float32
from tf_amp_kit.precision.pinning.pins import Pins
from tf_amp_kit.tracing.paths import LayerPaths, is_below

from .building import batch_of, build, made_under
from .checks import Seen, results_of, run, state_of
from .graphs import Graph, in_float32

__all__ = ["check_overlapping_pins", "check_pins", "check_pins_of_a_second_build"]


def pinned(seen: Seen, targets: Sequence[int]) -> Pins | Exception:
    """Pins the layers at some positions, or what the level pins; or returns what it raised."""
    layers = [layer for path, layer in LayerPaths(seen.model) if path]
    wanted = [layers[number % len(layers)] for number in targets] if layers else []
    try:
        return pin_float32(seen.model, *wanted, inputs=seen.inputs)
    except Exception as error:  # which ones may come out is for the caller to say
        return error


def policies_of(model: Any) -> list[tuple[str, str]]:
    """Returns the policy of each layer."""
    return [(path, layer.dtype_policy.name) for path, layer in LayerPaths(model)]


def check_pins(graph: Graph, targets: tuple[int, ...]) -> None:
    """Pinned layers compute what a float32 model's do, and `undo` brings all back."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        before, results = state_of(seen.model), results_of(seen)
        pins = pinned(seen, targets)
        if isinstance(pins, Exception):
            assert isinstance(pins, AmpError), repr(pins)
        else:
            held = below(LayerPaths(seen.model), pins.paths)
            assert not [layer for layer in held if layer.compute_dtype in HALF]
            with seen_eagerly() as eager:
                seen.model(seen.batch, training=False)
            check_values(seen.model, graph, eager, pins.paths)
            pins.undo()
        assert state_of(seen.model) == before
        assert results_of(seen) == results


def below(paths: LayerPaths, pinned: tuple[str, ...]) -> list[Any]:
    """Returns the layers at some paths, with their sublayers."""
    return [layer for path, layer in paths if any(is_below(path, pin) for pin in pinned)]


def check_values(model: Any, graph: Graph, eager: EagerRun, pins: tuple[str, ...]) -> None:
    """Compares pinned layers with those of a float32 model, on the same inputs."""
    with made_under(in_float32(graph)):
        twin = build(in_float32(graph))
        twin(batch_of(graph), training=False)
        twin.set_weights([np.asarray(one, np.float32) for one in model.get_weights()])
        mine, others = LayerPaths(model), LayerPaths(twin)
        for call in eager.layer_calls:
            path = mine.of(call.callee)
            if path in pins:
                expected = others[path](*call.args, **{**call.kwargs, "training": False})
                for one, other in zip(tensors_in(call.result), tensors_in(expected), strict=True):
                    assert one.dtype == other.dtype
                    np.testing.assert_array_equal(one.numpy(), other.numpy())


def check_overlapping_pins(
    graph: Graph, targets: tuple[int, ...], others: tuple[int, ...], first_out: int
) -> None:
    """Pins that are undone in any order leave what the others alone would do."""
    with made_under(graph):
        seen = run(graph)
        if seen.error is not None:
            return
        before, alone = state_of(seen.model), []
        for wanted in (targets, others):
            pins = pinned(seen, wanted)
            if isinstance(pins, Exception):
                return
            alone.append(policies_of(seen.model))
            pins.undo()
        both = [pinned(seen, targets), pinned(seen, others)]
        # One pin may need another to be undone first: then nobody can have both.
        if any(isinstance(one, Exception) for one in both):
            return
        both[first_out].undo()
        left = both[1 - first_out]
        held = below(LayerPaths(seen.model), left.paths)
        assert not [layer for layer in held if layer.compute_dtype in HALF]
        assert policies_of(seen.model) == alone[1 - first_out]
        left.undo()
        assert state_of(seen.model) == before


def check_pins_of_a_second_build(graph: Graph, targets: tuple[int, ...]) -> None:
    """Pins of one model can be applied to a second build of it, and do the same there."""
    with made_under(graph):
        first, second = run(graph), run(graph)
        if first.error is not None:
            return
        pins = pinned(first, targets)
        if isinstance(pins, Exception):
            return
        assert second.model is not first.model
        applied = pins.apply(second.model, inputs=second.inputs)
        assert applied.paths == pins.paths
        assert policies_of(second.model) == policies_of(first.model)
