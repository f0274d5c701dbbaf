"""Planted fragile layers are found exactly, among thirty that float16 does not harm."""

import pytest

import tf_amp_kit as amp
from tests.comparison import fragile

# Each of the others takes seconds.
QUICK = ("log_sum_exp", "raw_attention")


def plan_of(case: fragile.Fragile) -> amp.PrecisionPlan:
    return amp.plan_precision(
        case.model, case.x, precision="fp16", batch_size=16, time_steps=False, verbose=0
    )


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in fragile.PLANTED
    ],
)
def test_planted_layers_are_found_exactly(name: str) -> None:
    case = fragile.PLANTED[name](0)

    plan = plan_of(case)

    assert set(plan.pins.paths) == case.planted
    assert plan.meets_tolerance


def test_what_overflows_only_together_is_found_where_it_comes_from() -> None:
    case = fragile.product_between_layers(0)

    plan = plan_of(case)

    assert set(plan.pins.paths) == case.planted
    assert all(unit.reason != "non-finite" for unit in plan.units)


@pytest.mark.slow
def test_what_rounding_makes_overflow_takes_at_most_one_pin_more() -> None:
    case = fragile.rounded_up(0)

    plan = plan_of(case)

    # `shift` alone would do: the overflow is in `square`, and `log` takes its result.
    assert len(plan.pins.paths) <= len(case.planted) + 1
    assert plan.meets_tolerance


def test_a_clean_model_needs_no_pin_and_no_second_run() -> None:
    plan = plan_of(fragile.clean(0))

    assert (plan.pins.paths, plan.num_validations) == ((), 1)
