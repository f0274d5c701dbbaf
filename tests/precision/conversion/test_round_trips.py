"""Models of all kinds, from float32 to one half, to the other, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import keras
import pytest

import tf_amp_kit as amp
from tests.precision.conversion.helpers import (
    bits,
    optimizer_bits,
    policies,
    prediction,
    seeds,
)
from tests.precision.conversion.models import BUILDERS, Builder, built, data_for, trained

MIXED = {"bf16": "mixed_bfloat16", "fp16": "mixed_float16"}
OTHER = {"bf16": "fp16", "fp16": "bf16"}


@dataclass
class Trip:
    """A trained float32 model, and what became of it on the way."""

    builder: Builder
    half: str
    original: keras.Model
    inputs: Any
    targets: Any
    before: dict[str, Any]
    in_half: keras.Model
    in_other: keras.Model
    back: keras.Model


def look(model: keras.Model, inputs: Any) -> dict[str, Any]:
    """All that a conversion might change of a model."""
    return {
        "weights": bits(model.get_weights()),
        "optimizer": optimizer_bits(model.optimizer),
        "policies": policies(model),
        "seeds": seeds(model),
        "names": [model.name, *(layer.name for layer in model.layers)],
        "prediction": bits(prediction(model, inputs)),
    }


@pytest.fixture(
    scope="module",
    # Each trip visits both halves; half of them in the other order.
    params=list(zip(BUILDERS, cycle(MIXED), strict=False)),
    ids=lambda param: f"{param[0].__name__}-{param[1]}",
)
def trip(request: pytest.FixtureRequest) -> Iterator[Trip]:
    builder, half = request.param
    keras.utils.set_random_seed(4)
    original = trained(builder, "float32")
    inputs, targets = data_for(original)
    before = look(original, inputs)
    in_half = amp.convert_model(original, half)
    in_other = amp.convert_model(in_half, OTHER[half])
    back = amp.to_float32(in_other)
    yield Trip(builder, half, original, inputs, targets, before, in_half, in_other, back)


def test_the_original_stays_as_it_was(trip: Trip) -> None:
    assert look(trip.original, trip.inputs) == trip.before


def test_the_way_back_ends_at_the_same_model(trip: Trip) -> None:
    assert look(trip.back, trip.inputs) == trip.before


@pytest.mark.parametrize("stage", ["in_half", "in_other"])
def test_weights_slots_and_seeds_keep_their_bits(trip: Trip, stage: str) -> None:
    twin = getattr(trip, stage)
    assert bits(twin.get_weights()) == trip.before["weights"]
    assert optimizer_bits(twin.optimizer) == trip.before["optimizer"]
    assert seeds(twin) == trip.before["seeds"]


def test_a_half_twin_has_the_policies_of_the_same_code_under_that_policy(trip: Trip) -> None:
    for twin, half in [(trip.in_half, trip.half), (trip.in_other, OTHER[trip.half])]:
        assert policies(twin) == policies(built(trip.builder, MIXED[half]))


def test_a_half_twin_predicts_what_the_same_code_under_that_policy_does(trip: Trip) -> None:
    reference = built(trip.builder, MIXED[trip.half])
    reference.set_weights(trip.original.get_weights())
    expected = bits(prediction(reference, trip.inputs))
    assert bits(prediction(trip.in_half, trip.inputs)) == expected


def test_to_float32_of_a_model_built_in_half_predicts_what_float32_does(trip: Trip) -> None:
    in_half = built(trip.builder, MIXED[trip.half])
    in_half.set_weights(trip.original.get_weights())
    twin = amp.to_float32(in_half)
    assert policies(twin) == trip.before["policies"]
    expected = trip.original.predict(trip.inputs, verbose=0)
    assert bits(twin.predict(trip.inputs, verbose=0)) == bits(expected)


def test_only_float16_scales_the_loss(trip: Trip) -> None:
    scaled = {
        half: isinstance(twin.optimizer, keras.optimizers.LossScaleOptimizer)
        for half, twin in [
            (trip.half, trip.in_half),
            (OTHER[trip.half], trip.in_other),
            ("fp32", trip.back),
        ]
    }
    assert scaled == {"fp16": True, "bf16": False, "fp32": False}


# Last: it trains on.
def test_the_next_step_is_the_original_s(trip: Trip) -> None:
    for model in (trip.original, trip.back):
        model.train_on_batch(trip.inputs, trip.targets)
    assert bits(trip.back.get_weights()) == bits(trip.original.get_weights())
    assert optimizer_bits(trip.back.optimizer) == optimizer_bits(trip.original.optimizer)
    assert bits(trip.back.get_weights()) != trip.before["weights"]
