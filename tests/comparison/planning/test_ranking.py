"""The order of units: against a greedy choice that tries each of them every time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.comparison.planning.given import effects_of
from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.ranking import rank_units
from tf_amp_kit.tracing.paths import is_below

PATHS = ["a", "b", "block", "block/c", "block/d", "block/inner", "block/inner/e", "f", "g"]
PARENTS = {
    "block/c": "block",
    "block/d": "block",
    "block/inner": "block",
    "block/inner/e": "block/inner",
}


def random_effects(seed: int, is_sum: bool = False) -> Effects:
    rng = np.random.default_rng(seed)
    sizes = 10 ** rng.uniform(-2, 0, len(PATHS))
    errors = {path: rng.normal(size=3) * size for path, size in zip(PATHS, sizes, strict=True)}
    pairs = [(taker, giver) for taker in PATHS for giver in PATHS if taker > giver]
    chosen = rng.choice(len(pairs), 7, replace=False)
    roundings = {pairs[one]: rng.normal(size=3) * 0.3 for one in chosen}
    return effects_of(errors, roundings, parents=PARENTS, is_sum=is_sum)


def is_greedy(
    order: tuple[str, ...], effects: Effects, excluded: tuple[str, ...] = ()
) -> Iterator[bool]:
    """Tries each unit in each round: what it takes off the square, per unit in it."""
    for length, chosen in enumerate(order):
        pins = order[:length]
        half, before = effects.half_with(pins), effects.predict(pins) ** 2
        worth = {
            path: (before - effects.predict([*pins, path]) ** 2)
            / sum(is_below(one, path) for one in half)
            for path in half
            if path not in excluded
        }
        yield worth[chosen] >= max(worth.values()) - 1e-9


@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_the_order_is_that_of_a_greedy_choice(seed, is_sum):
    effects = random_effects(seed, is_sum)
    assert all(is_greedy(rank_units(effects), effects))


@pytest.mark.parametrize("seed", range(60))
def test_so_it_is_when_some_cannot_be_pinned(seed):
    effects, excluded = random_effects(seed), ("b", "block/c", "block/inner")
    assert all(is_greedy(rank_units(effects, excluded), effects, excluded))


def test_larger_errors_come_first():
    assert rank_units(effects_of({"a": [1], "b": [-3], "c": [2]})) == ("b", "c", "a")


def test_units_without_an_effect_come_last_in_the_order_of_the_model():
    effects = effects_of({"a": [0], "b": [0], "c": [2]}, without_errors=["d"])
    assert rank_units(effects) == ("c", "a", "b", "d")


def test_no_units_have_no_order():
    assert rank_units(effects_of({})) == ()


def test_the_worth_of_a_unit_falls_when_its_giver_is_pinned():
    # Alone, a takes off 9 - (16 - 1), for b would round what a does not any more. b
    # takes off 1, c takes off 2; with b pinned, a takes off 9.
    effects = effects_of({"a": [3], "b": [4], "c": [2**0.5]}, {("b", "a"): [3]})
    assert rank_units(effects) == ("c", "b", "a")


def test_a_composite_has_to_be_worth_all_that_is_in_it():
    # Whole, it takes off 8^2, or 21 for each of three: less than b's 25.
    errors = {"block": [8], "block/c": [1], "block/d": [1], "b": [5]}
    parents = {"block/c": "block", "block/d": "block"}
    assert rank_units(effects_of(errors, parents=parents)) == ("b", "block")


def test_a_composite_that_is_pinned_takes_its_parts_off_the_list():
    errors = {"block": [10], "block/c": [1], "b": [1]}
    assert rank_units(effects_of(errors, parents={"block/c": "block"})) == ("block", "b")


def test_a_part_that_does_it_all_comes_before_its_composite():
    errors = {"block": [10], "block/c": [9.5], "block/d": [0.25]}
    parents = {"block/c": "block", "block/d": "block"}
    assert rank_units(effects_of(errors, parents=parents))[0] == "block/c"


def test_what_makes_nan_comes_first_then_what_is_close_to_the_range():
    effects = effects_of(
        {"a": [9], "b": [0], "c": [0], "d": [0]},
        nonfinite=["d"],
        largest={"a": 1, "b": 9000, "c": 30000, "d": 1},
    )
    assert rank_units(effects) == ("d", "c", "b", "a")


def test_a_composite_is_not_urgent_for_numbers_of_its_parts():
    # The part is near the range, so the composite returns such numbers too.
    errors = {"block": [0.5], "block/c": [0.25], "b": [9]}
    effects = effects_of(
        errors, parents={"block/c": "block"}, largest={"block": 9000, "block/c": 9000}
    )
    assert rank_units(effects) == ("block/c", "b", "block")


def test_only_the_part_that_makes_nan_is_urgent():
    effects = effects_of(
        {"block": [0.5], "block/c": [0.25], "b": [9]},
        parents={"block/c": "block"},
        nonfinite=["block", "block/c"],
    )
    assert rank_units(effects) == ("block/c", "b", "block")


def test_what_cannot_be_pinned_is_left_out_however_urgent():
    effects = effects_of({"a": [9], "b": [1], "c": [2]}, nonfinite=["a"], largest={"b": 60000})
    assert rank_units(effects, ("a", "b")) == ("c",)


def test_what_cannot_be_pinned_goes_along_with_its_composite():
    effects = effects_of({"block": [10], "block/c": [10], "b": [1]}, parents={"block/c": "block"})
    assert rank_units(effects, ("block/c",)) == ("block", "b")


@settings(deadline=None, max_examples=100, derandomize=True)
@given(
    seed=st.integers(0, 10_000),
    nonfinite=st.sets(st.sampled_from(PATHS)),
    near=st.sets(st.sampled_from(PATHS)),
    excluded=st.sets(st.sampled_from(PATHS)),
)
def test_every_order_pins_all_that_can_be_and_nothing_twice(seed, nonfinite, near, excluded):
    known = random_effects(seed)
    effects = Effects(
        known.units,
        known.errors,
        known.roundings,
        nonfinite,
        dict.fromkeys(near, 60000.0),
        known.limit,
    )
    order = rank_units(effects, excluded)
    for index, path in enumerate(order):
        assert not any(is_below(path, before) for before in order[:index])
    left = {one for one in PATHS if not any(is_below(one, path) for path in order)}
    assert not set(order) & excluded and left <= excluded
