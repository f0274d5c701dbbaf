"""What the errors of units come to, alone and together: sums of squares by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.comparison.planning.given import effects_of


def chain():
    """Two units, of which the second rounds what the first one returned."""
    return effects_of({"a": [1, 0], "b": [5, 0]}, {("b", "a"): [3, 0]})


def block():
    """A composite of two units, of which the second takes what the first one returned."""
    return effects_of(
        {"block": [10], "block/a": [3], "block/b": [4]},
        {("block/b", "block/a"): [1]},
        parents={"block/a": "block", "block/b": "block"},
    )


def test_a_score_is_the_norm_of_the_samples():
    assert effects_of({"a": [3, 4]}).score("a") == 5


def test_a_unit_that_no_output_depends_on_has_no_score():
    assert effects_of({}, without_errors=["a"]).score("a") == 0


def test_the_score_of_a_unit_that_makes_nan_is_infinite():
    assert effects_of({"a": [3, 4]}, nonfinite=["a"]).score("a") == math.inf


def test_the_score_of_a_loss_that_all_samples_move_one_way_is_their_sum():
    assert effects_of({"a": [1, 2, 3]}, is_sum=True).score("a") == 6


def test_samples_that_cancel_in_a_loss_still_count_as_if_their_signs_were_random():
    assert effects_of({"a": [3, -4]}, is_sum=True).score("a") == 5


def test_the_losses_of_batches_add_up_by_size():
    effects = replace(effects_of({"a": [1, 2, -3, -4]}), batch_sizes=(2, 2))
    assert effects.score("a") == 3 + 7


@pytest.mark.parametrize(
    ("largest", "reason"), [(8188.0, "error"), (8188.5, "range"), (0.0, "error")]
)
def test_numbers_within_a_factor_of_8_of_the_largest_one_are_a_reason(largest, reason):
    # The largest float16 is 65504 = 8 * 8188.
    assert effects_of({"a": [1]}, largest={"a": largest}).reason("a") == reason


def test_a_unit_whose_numbers_nobody_saw_is_judged_by_its_error():
    assert effects_of({"a": [1]}).reason("a") == "error"


def test_nan_is_a_reason_before_the_range():
    effects = effects_of({"a": [1]}, nonfinite=["a"], largest={"a": 60000.0})
    assert effects.reason("a") == "non-finite"


@pytest.mark.parametrize(
    ("pinned", "expected"), [((), 13), (("a",), math.hypot(4, 12)), (("a", "b"), 12), ("abc", 0)]
)
def test_squares_of_what_stays_in_half_add_up(pinned, expected):
    effects = effects_of({"a": [3, 0], "b": [0, 4], "c": [0, 12]})
    assert effects.predict(pinned) == pytest.approx(expected, rel=1e-15)


def test_a_composite_in_float32_takes_along_what_is_in_it():
    effects = effects_of({"block/a": [3], "blocks": [4]})
    assert effects.predict(["block"]) == 4


def test_the_layer_of_the_empty_path_holds_all():
    assert effects_of({"a": [3], "b/c": [4]}).predict([""]) == 0


def test_one_unit_that_makes_nan_spoils_all_until_it_is_pinned():
    effects = effects_of({"a": [3], "b": [4]}, nonfinite=["b"])
    assert [effects.predict(pins) for pins in ((), "a", "b")] == [math.inf, math.inf, 3]


def test_a_unit_without_samples_can_still_spoil_all():
    effects = effects_of({"a": [3]}, without_errors=["b"], nonfinite=["b"])
    assert (effects.predict(()), effects.predict(["b"])) == (math.inf, 3)


def test_what_both_units_round_counts_once():
    assert chain().predict(()) == math.hypot(1, 5 - 3)


def test_rounding_counts_in_full_after_a_unit_in_float32():
    assert chain().predict(["a"]) == 5


def test_what_a_unit_takes_does_not_matter_when_it_is_in_float32():
    assert chain().predict(["b"]) == 1


def test_roundings_of_two_givers_are_taken_out_one_by_one():
    effects = effects_of(
        {"a": [0], "b": [0], "c": [10]}, {("c", "a"): [3], ("c", "b"): [-4], ("d", "a"): [7]}
    )
    found = [effects.predict(pins) for pins in ((), ("a",), ("b",), ("a", "b"))]
    assert found == [10 - 3 + 4, 10 + 4, 10 - 3, 10]


def test_who_gives_and_who_takes_is_read_off_the_roundings():
    effects = effects_of({}, {("c", "a"): [3], ("c", "b"): [4], ("d", "a"): [7]})
    assert effects.givers == {"c": ["a", "b"], "d": ["a"]}
    assert effects.takers == {"a": ["c", "d"], "b": ["c"]}


def test_all_in_half_a_composite_comes_to_what_its_whole_is_off_by():
    assert block().predict(()) == 10


@pytest.mark.parametrize(
    ("pinned", "square"),
    [
        # The parts come to 3^2 and, of what a has rounded already, (4 - 1)^2: of the
        # 10^2 of the whole, 82 are the composite's own.
        (("block/a",), 82 + 4**2),
        (("block/b",), 82 + 3**2),
        (("block/a", "block/b"), 82),
        (("block",), 0),
    ],
)
def test_a_composite_s_own_part_stays_when_parts_are_pinned(pinned, square):
    assert block().predict(pinned) == pytest.approx(math.sqrt(square), rel=1e-15)


def test_parts_that_are_worse_than_the_whole_leave_it_no_part_of_its_own():
    effects = effects_of(
        {"block": [1], "block/a": [3], "block/b": [-3]},
        parents={"block/a": "block", "block/b": "block"},
    )
    found = [effects.predict(pins) for pins in ((), ("block/a",), ("block/a", "block/b"))]
    assert found == [math.hypot(3, 3), 3, 0]


def test_a_composite_in_a_composite_is_one_of_its_parts():
    effects = effects_of(
        {"net": [20], "net/block": [10], "net/block/a": [3]},
        parents={"net/block": "net", "net/block/a": "net/block"},
    )
    found = [effects.predict(pins) ** 2 for pins in ((), ("net/block/a",), ("net/block",))]
    assert found == pytest.approx([20**2, 20**2 - 3**2, 20**2 - 10**2])


def test_what_a_part_takes_from_outside_is_no_business_of_the_composite_s_own_part():
    effects = effects_of(
        {"a": [0], "block": [10], "block/b": [4]},
        {("block/b", "a"): [1]},
        parents={"block/b": "block"},
    )
    assert effects.predict(()) == pytest.approx(math.sqrt(10**2 - 4**2 + (4 - 1) ** 2))


def test_a_part_takes_what_its_composite_has_rounded():
    # Both round the input, by 2: in half the composite does it, and the part no more.
    effects = effects_of(
        {"block": [9], "block/a": [5]}, {("block/a", "block"): [2]}, parents={"block/a": "block"}
    )
    found = [effects.predict(pins) ** 2 for pins in ((), ("block/a",))]
    assert found == pytest.approx([9**2, 9**2 - (5 - 2) ** 2])


def test_a_unit_that_raises_says_so_before_all_else():
    effects = effects_of({"a": [1]}, nonfinite=["a"], raising=["a"], largest={"a": 60000.0})
    assert (effects.reason("a"), effects.score("a")) == ("raises", math.inf)


def test_a_part_without_samples_leaves_its_composite_whole():
    effects = effects_of({"block": [10]}, parents={"block/a": "block"}, without_errors=["block/a"])
    assert effects.predict(()) == 10


def test_the_culprit_is_the_part_and_not_the_composite_around_it():
    effects = effects_of({"block": [1], "block/a": [1]}, nonfinite=["block", "block/a"])
    assert effects.culprits == ("block/a",)


def test_a_composite_whose_own_code_makes_nan_is_a_culprit():
    effects = effects_of({"block": [1], "block/a": [1], "b": [1]}, nonfinite=["b", "block"])
    assert effects.culprits == ("block", "b")


def test_pinning_the_culprit_is_enough_although_its_composite_makes_nan_too():
    effects = effects_of(
        {"block": [1], "block/a": [1]},
        parents={"block/a": "block"},
        nonfinite=["block", "block/a"],
    )
    assert (effects.predict(()), effects.predict(["block/a"])) == (math.inf, 0)
