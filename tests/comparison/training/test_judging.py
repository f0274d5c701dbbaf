"""Verdicts on losses made by hand: every number here was computed on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tf_amp_kit.comparison.training.judging import (
    differences_between,
    end_value,
    judge,
    measure_of,
    start_value,
)
from tf_amp_kit.comparison.training.record.parts import (
    Difference,
    Evaluation,
    TrainingRun,
    Verdict,
)

NAN = math.nan

# Three float32 runs that end at these losses have the mean 1 and the standard deviation 0.1.
WIDE = (1.0, 1.1, 0.9)
MEDIUM = (1.0, 1.08, 0.92)  # 0.08
NARROW = (1.0, 1.01, 0.99)  # 0.01


def run_to(end: float, seed: int = 0, *, start: float = 2.0, name: str = "bfloat16") -> TrainingRun:
    """A run of 100 steps that jumps from one loss to the other half way."""
    return TrainingRun(name, seed, (start,) * 50 + (end,) * 50)


def float32_to(ends: Sequence[float], start: float = 2.0) -> list[TrainingRun]:
    return [run_to(end, seed, start=start, name="float32") for seed, end in enumerate(ends)]


def evaluated(values: Sequence[dict[str, float]], seed: int = 0) -> TrainingRun:
    """A run that was evaluated at steps 0, 10, 20 and so on."""
    points = tuple(Evaluation(10 * i, one) for i, one in enumerate(values))
    return TrainingRun("bfloat16", seed, (2.0,) * 100, points)


def of_accuracy(start: float, end: float, seed: int = 0, loss: float = 1.0) -> TrainingRun:
    rest = [{"accuracy": end, "loss": loss}] * 3
    return evaluated([{"accuracy": start, "loss": 2.0}, *rest], seed)


def loss_of(reference: Sequence[TrainingRun], others: Sequence[TrainingRun]) -> Difference:
    (found,) = differences_between(reference, others, {})
    return found


def judged(
    reference: Sequence[TrainingRun],
    others: Sequence[TrainingRun],
    directions: dict[str, str | None] | None = None,
    *,
    num_steps: int = 100,
    tolerance: float = 0.01,
) -> Verdict:
    finished = [run for run in others if not run.failure]
    found = differences_between(reference, finished, directions or {})
    return judge(others, found, num_steps=num_steps, tolerance=tolerance)


# ---------------------------------------------------------------- the ends of a run


def test_the_end_is_the_mean_of_the_last_tenth() -> None:
    losses = (9.0,) * 18 + (1.0, 2.0)
    assert end_value(TrainingRun("float32", 0, losses), "loss") == 1.5


def test_the_start_is_the_mean_of_the_first_twentieth() -> None:
    losses = (4.0, 2.0) + (0.0,) * 38
    assert start_value(TrainingRun("float32", 0, losses), "loss") == 3.0


def test_a_run_of_one_step_starts_and_ends_with_it() -> None:
    run = TrainingRun("float32", 0, (3.0,))
    assert (start_value(run, "loss"), end_value(run, "loss")) == (3.0, 3.0)


def test_skipped_steps_have_no_part_in_the_end() -> None:
    losses = (9.0,) * 27 + (1.0, NAN, 2.0)
    assert end_value(TrainingRun("float32", 0, losses), "loss") == 1.5


def test_an_end_of_skipped_steps_alone_is_unknown() -> None:
    assert math.isnan(end_value(TrainingRun("float32", 0, (9.0,) * 9 + (NAN,)), "loss"))


def test_infinite_losses_count() -> None:
    losses = (9.0,) * 18 + (1.0, math.inf)
    assert end_value(TrainingRun("float32", 0, losses), "loss") == math.inf


def test_on_validation_data_the_end_is_the_mean_of_the_last_three_evaluations() -> None:
    run = evaluated([{"loss": one} for one in (9.0, 8.0, 3.0, 4.0, 5.0)])
    assert end_value(run, "val_loss") == 4.0


def test_the_evaluation_at_the_start_is_no_end() -> None:
    run = evaluated([{"loss": 9.0}, {"loss": 3.0}, {"loss": 1.0}])
    assert end_value(run, "val_loss") == 2.0


def test_on_validation_data_the_start_is_the_first_evaluation() -> None:
    assert start_value(evaluated([{"loss": 9.0}, {"loss": 3.0}]), "val_loss") == 9.0


def test_verdicts_are_about_the_validation_data_if_there_are_any() -> None:
    assert measure_of([evaluated([{"loss": 9.0}])]) == "val_loss"


def test_without_validation_data_verdicts_are_about_the_loss() -> None:
    assert measure_of(float32_to(WIDE)) == "loss"


# ------------------------------------------------------------------------- differences


def test_the_numbers_of_a_difference_are_those_on_paper() -> None:
    found = loss_of(float32_to(WIDE), [run_to(1.3, seed=1)])
    # float32 with seed 1 ends at 1.1; t = 4.303, 4.303 * 0.1 * sqrt(2) = 0.60854.
    numbers = (
        found.reference, found.spread, found.value, found.worsening, found.bound, found.share,
        found.learned,
    )  # fmt: skip
    assert numbers == pytest.approx((1.1, 0.1, 1.3, 0.2, 0.60854, 0.2, 1.0), rel=1e-4)


def test_more_runs_know_their_mean_better() -> None:
    found = loss_of(float32_to(WIDE), [run_to(1.0, seed) for seed in range(3)])
    # 4.303 * 0.1 * sqrt(2 / 3)
    assert found.bound == pytest.approx(0.35134, rel=1e-4)


def test_runs_are_compared_with_float32_of_the_same_seeds() -> None:
    found = loss_of(float32_to(WIDE), [run_to(1.2, seed=1), run_to(1.0, seed=2)])
    # (1.2 + 1.0) / 2 against (1.1 + 0.9) / 2.
    assert (found.reference, found.worsening) == pytest.approx((1.0, 0.1))


def test_a_control_with_other_seeds_is_compared_with_the_mean() -> None:
    found = loss_of(float32_to(WIDE), [run_to(1.05, seed=7)])
    assert (found.reference, found.worsening) == pytest.approx((1.0, 0.05))


def test_four_float32_runs_have_three_degrees_of_freedom() -> None:
    # Mean 1, squares of deviations 4 * 0.01, so s = sqrt(0.04 / 3) = 0.11547.
    found = loss_of(float32_to((1.1, 0.9, 1.1, 0.9)), [run_to(1.1)])
    assert (found.spread, found.bound) == pytest.approx((0.11547, 3.182 * 0.1633), rel=1e-3)


def test_the_spread_of_one_float32_run_is_not_known() -> None:
    found = loss_of(float32_to((1.0,)), [run_to(1.0)])
    assert (found.spread, found.bound) == (math.inf, math.inf)


def test_of_runs_that_learned_nothing_no_share_is_told() -> None:
    found = loss_of(float32_to(WIDE, start=1.0), [run_to(1.2, start=1.0)])
    assert math.isnan(found.share)


def test_the_loss_on_validation_data_decides_first() -> None:
    runs = [of_accuracy(0.1, 0.8, seed) for seed in range(3)]
    names = [one.measure for one in differences_between(runs, runs[:1], {"accuracy": "up"})]
    assert names == ["val_loss", "val_accuracy"]


def test_less_of_a_metric_that_should_rise_is_worse() -> None:
    reference = [of_accuracy(0.1, end, seed) for seed, end in enumerate((0.8, 0.81, 0.79))]
    (_, found) = differences_between(reference, [of_accuracy(0.1, 0.7)], {"accuracy": "up"})
    # 0.1 of the 0.7 that float32 learned.
    assert (found.worsening, found.learned, found.share) == pytest.approx((0.1, 0.7, 1 / 7))


def test_a_metric_of_unknown_direction_is_not_judged() -> None:
    reference = [of_accuracy(0.1, end, seed) for seed, end in enumerate((0.8, 0.81, 0.79))]
    (_, found) = differences_between(reference, [of_accuracy(0.1, 0.7)], {"accuracy": None})
    assert (found.is_judged, found.worsening) == (False, pytest.approx(-0.1))


def test_a_metric_behind_the_name_of_an_output_is_known() -> None:
    runs = [evaluated([{"loss": 1.0, "head_accuracy": 0.5}] * 4, seed) for seed in range(3)]
    (_, found) = differences_between(runs, runs[:1], {"accuracy": "up"})
    assert found.is_judged


def test_the_loss_of_one_output_is_judged_as_a_part_of_the_whole() -> None:
    runs = [evaluated([{"loss": 1.0, "head_loss": 0.5}] * 4, seed) for seed in range(3)]
    found = differences_between(runs, runs[:1], {})
    assert [one.is_judged for one in found] == [True, False]


@pytest.mark.parametrize(("reference", "others"), [([], [run_to(1.0)]), (float32_to(WIDE), [])])
def test_nothing_is_compared_with_nothing(
    reference: list[TrainingRun], others: list[TrainingRun]
) -> None:
    assert differences_between(reference, others, {}) == ()


# ---------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    ("ends", "value", "tolerance", "outcome"),
    [
        # The bound is 0.060854 with 0.01 between seeds.
        (NARROW, 1.0, 0.01, "equal"),
        (NARROW, 1.0608, 0.01, "equal"),
        (NARROW, 1.0609, 0.01, "worse"),
        (NARROW, 0.9392, 0.01, "equal"),
        (NARROW, 0.9391, 0.01, "better"),
        # A tenth of what was learned, which is 1, is accepted in any case.
        (NARROW, 1.0999, 0.1, "equal"),
        (NARROW, 1.1001, 0.1, "worse"),
        # The bound is 0.48679 with 0.08 between seeds: more than a tenth of what was learned.
        (MEDIUM, 1.0799, 0.01, "equal"),
        (MEDIUM, 1.0801, 0.01, "undecided"),
        (MEDIUM, 1.4867, 0.01, "undecided"),
        (MEDIUM, 1.4869, 0.01, "worse"),
        (MEDIUM, 0.9199, 0.01, "undecided"),
        (MEDIUM, 0.5131, 0.01, "better"),
        (MEDIUM, 1.3, 0.3001, "equal"),
        # Seeds that differ by 0.3, more than a tenth of what was learned.
        ((1.0, 1.3, 0.7), 1.0, 0.01, "undecided"),
        # The bound is 1.8255: beyond it, what was learned and twice the loss nothing excuses.
        ((1.0, 1.3, 0.7), 4.8254, 0.01, "undecided"),
        ((1.0, 1.3, 0.7), 4.8257, 0.01, "worse"),
        # All seeds alike: nothing may differ but for the tolerance.
        ((1.0, 1.0, 1.0), 1.0099, 0.01, "equal"),
        ((1.0, 1.0, 1.0), 1.0101, 0.01, "worse"),
        ((1.0, 1.0, 1.0), 1.0, 0.0, "equal"),
        # One finished run of float32 tells nothing of a spread.
        ((1.0,), 1.0, 0.01, "undecided"),
        ((1.0,), 50.0, 0.01, "undecided"),
    ],
)
def test_a_difference_is_judged_by_the_spread_and_the_tolerance(
    ends: Sequence[float], value: float, tolerance: float, outcome: str
) -> None:
    verdict = judged(float32_to(ends), [run_to(value)], tolerance=tolerance)
    assert verdict.outcome == outcome


def test_with_three_seeds_less_may_be_chance() -> None:
    # The bound is 4.303 * 0.01 * sqrt(2 / 3) = 0.035134.
    runs = [run_to(one + 0.0352, seed) for seed, one in enumerate(NARROW)]
    assert judged(float32_to(NARROW), runs).outcome == "worse"


def test_what_learned_nothing_has_nothing_to_lose() -> None:
    verdict = judged(float32_to(WIDE, start=1.0), [run_to(1.0, start=1.0)])
    assert (verdict.outcome, verdict.reasons[0]) == (
        "undecided",
        "float32 itself learned nothing: its loss ended 0 worse than it began. Train more steps, "
        "or look at the learning rate.",
    )


def test_seeds_that_differ_by_much_of_what_was_learned_are_told_so() -> None:
    # Learned: from 2 to 1. The seeds end at 0.8, 1 and 1.2: a standard deviation of 0.2.
    verdict = judged(float32_to((0.8, 1.0, 1.2)), [run_to(0.8)])
    assert (verdict.outcome, verdict.reasons[0]) == (
        "undecided",
        "float32 itself gained 1 in loss, and its seeds differ by 0.2 (standard deviation), 20 % "
        "of it: half precision could lose as much unseen. Train more steps, until the seeds agree.",
    )


def test_equal_tells_what_would_have_shown() -> None:
    # For three runs and one: Student's t of two degrees of freedom, 4.303, by 0.01 by root 2.
    verdict = judged(float32_to(NARROW), [run_to(1.0)])
    assert verdict.outcome == "equal"
    assert verdict.reasons[0].endswith("Losing more than 0.061 would have shown.")


@pytest.mark.parametrize(("tolerance", "expected"), [(0.01, 0.05), (0.1, 0.1)])
def test_the_resolution_is_the_bound_or_what_is_accepted(tolerance: float, expected: float) -> None:
    one = Difference("loss", 0.5, 0.01, 0.5, 0.0, 0.05, 0.0, learned=2.0, learned_late=1.0)
    assert one.resolution(tolerance) == expected


def test_seeds_that_change_nothing_do_not_make_rounding_a_verdict() -> None:
    verdict = judged(float32_to((1.0, 1.0, 1.0), start=1.0), [run_to(1.0002, start=1.0)])
    assert verdict.outcome == "undecided"


def test_what_was_learned_in_the_first_tenth_is_no_measure_of_the_tolerance() -> None:
    def run(name: str, end: float, seed: int) -> TrainingRun:
        return TrainingRun(name, seed, (1e6,) * 10 + (1.0,) * 40 + (end,) * 50)

    reference = [run("float32", 1e-4, seed) for seed in range(3)]

    assert judged(reference, [run("bfloat16", 1.35, 0)]).outcome == "worse"


def test_what_only_the_tolerance_accepts_is_said() -> None:
    verdict = judged(float32_to((1.0, 1.0, 1.0)), [run_to(1.005)])
    assert "but the tolerance accepts 0.01." in verdict.reasons[0]


def test_a_metric_that_is_nan_in_float32_is_not_judged() -> None:
    reference = [of_accuracy(0.1, NAN, seed) for seed in range(3)]
    found = differences_between(reference, [of_accuracy(0.1, 0.5)], {"accuracy": "up"})
    assert {one.measure: one.is_judged for one in found} == {
        "val_loss": True,
        "val_accuracy": False,
    }


def test_what_was_learned_at_once_is_judged_by_a_share_of_the_measure() -> None:
    # All of it before the first tenth: 1 % of the accuracy is accepted.
    reference = [
        evaluated([{"accuracy": 0.1, "loss": 1.0}, *[{"accuracy": 1.0, "loss": 1.0}] * 9], seed)
        for seed in range(3)
    ]
    half = evaluated([{"accuracy": 0.1, "loss": 1.0}, *[{"accuracy": 0.995, "loss": 1.0}] * 9])
    (_, accuracy) = differences_between(reference, [half], {"accuracy": "up"})
    assert judge([half], [accuracy], num_steps=100, tolerance=0.01).outcome == "equal"
    assert judge([half], [accuracy], num_steps=100, tolerance=0.004).outcome == "worse"


def test_a_metric_that_may_have_lost_much_leaves_it_open() -> None:
    reference = [of_accuracy(0.1, end, seed, 1.0) for seed, end in enumerate((0.8, 0.88, 0.72))]
    half = of_accuracy(0.1, 0.5)
    verdict = judged(reference, [half], {"accuracy": "up"})
    assert (verdict.outcome, "val_accuracy" in verdict.reasons[0]) == ("undecided", True)


def test_more_measures_widen_the_bound_of_each() -> None:
    reference = [of_accuracy(0.1, end, seed, 1.0) for seed, end in enumerate((0.8, 0.81, 0.79))]
    found = differences_between(reference, [of_accuracy(0.1, 0.8)], {"accuracy": "up"})
    # Of two measures, 1.25 % on each side: t is 6.2053 for 2 degrees of freedom.
    assert found[1].bound == pytest.approx(6.2053 * 0.01 * math.sqrt(2), rel=1e-4)


def test_where_the_loss_rises_in_float32_nothing_is_decided() -> None:
    verdict = judged(float32_to(WIDE, start=0.5), [run_to(1.05, start=0.5)])
    assert verdict.outcome == "undecided"


def test_an_end_without_a_known_loss_is_worse() -> None:
    half = TrainingRun("float16", 0, (2.0,) * 80 + (NAN,) * 20)
    assert judged(float32_to(NARROW), [half]).outcome == "worse"


def test_an_infinite_end_is_worse() -> None:
    assert judged(float32_to(NARROW), [run_to(math.inf)]).outcome == "worse"


def test_an_infinite_end_is_worse_whatever_seeds_differ_by() -> None:
    assert judged(float32_to((1.0, 1.3, 0.7)), [run_to(math.inf)]).outcome == "worse"


@pytest.mark.parametrize(("num_steps", "outcome"), [(19, "undecided"), (20, "worse")])
def test_fewer_than_twenty_steps_decide_nothing(num_steps: int, outcome: str) -> None:
    verdict = judged(float32_to(NARROW), [run_to(1.5)], num_steps=num_steps)
    assert verdict.outcome == outcome


def test_too_few_steps_are_told_with_their_number() -> None:
    verdict = judged(float32_to(NARROW), [run_to(1.5)], num_steps=19)
    assert verdict.reasons[0].startswith("19 steps are too few. At least 20 are needed")


def test_a_run_that_failed_is_worse_even_after_few_steps() -> None:
    failed = TrainingRun("float16", 4, (), failure="ValueError: no")
    verdict = judged(float32_to(NARROW), [run_to(1.0), failed], num_steps=3)
    assert verdict == Verdict("worse", ("With seed 4: ValueError: no.",), math.inf)


def test_an_interrupted_run_is_left_out() -> None:
    stopped = TrainingRun("bfloat16", 1, (9.0,), failure="interrupted")
    assert judged(float32_to(NARROW), [run_to(1.0), stopped]).outcome == "equal"


def test_a_precision_without_a_finished_run_is_undecided() -> None:
    stopped = TrainingRun("bfloat16", 1, (9.0,), failure="interrupted")
    verdict = judged(float32_to(NARROW), [stopped])
    assert (verdict.outcome, verdict.reasons) == ("undecided", ("No run of it is finished.",))


def accuracies(*ends: float) -> list[TrainingRun]:
    return [of_accuracy(0.1, end, seed) for seed, end in enumerate(ends)]


def test_a_worse_metric_makes_worse_what_has_the_same_loss() -> None:
    verdict = judged(accuracies(0.8, 0.81, 0.79), [of_accuracy(0.1, 0.5)], {"accuracy": "up"})
    assert (verdict.outcome, verdict.reasons[0][:21]) == ("worse", "val_accuracy is 0.5 w")


def test_a_metric_that_rises_is_not_worse_for_more() -> None:
    verdict = judged(accuracies(0.8, 0.81, 0.79), [of_accuracy(0.1, 0.99)], {"accuracy": "up"})
    assert verdict.outcome == "equal"


def test_a_metric_of_unknown_direction_makes_nothing_worse() -> None:
    verdict = judged(accuracies(0.8, 0.81, 0.79), [of_accuracy(0.1, 0.5)], {"accuracy": None})
    assert verdict.outcome == "equal"


def test_the_share_of_what_is_worse_is_that_of_the_worst_measure() -> None:
    others = [of_accuracy(0.1, 0.45, loss=1.2)]
    verdict = judged(accuracies(0.8, 0.81, 0.79), others, {"accuracy": "up"})
    # The loss lost 0.2 of 1, the accuracy 0.35 of 0.7.
    assert (len(verdict.reasons), verdict.share) == (2, pytest.approx(0.5))


def test_what_is_not_judged_has_no_part_in_the_share() -> None:
    reference = [of_accuracy(0.9, end, seed) for seed, end in enumerate((0.2, 0.21, 0.19))]
    verdict = judged(reference, [of_accuracy(0.9, 0.8, loss=1.2)], {"accuracy": None})
    assert (verdict.outcome, verdict.share) == ("worse", pytest.approx(0.2))


def test_what_is_within_the_spread_has_no_part_in_the_share() -> None:
    reference = accuracies(0.8, 0.95, 0.65)
    verdict = judged(reference, [of_accuracy(0.1, 0.5, loss=1.2)], {"accuracy": "up"})
    # The accuracy lost 0.3 of 0.7, but 4.303 * 0.15 * sqrt(2) may be chance.
    assert (verdict.outcome, verdict.share) == ("worse", pytest.approx(0.2))


def test_a_loss_that_is_better_does_not_excuse_a_metric_that_is_worse() -> None:
    others = [of_accuracy(0.1, 0.5, loss=0.5)]
    verdict = judged(accuracies(0.8, 0.81, 0.79), others, {"accuracy": "up"})
    assert verdict.outcome == "worse"


# --------------------------------------------------------------------------- sentences


def test_the_reason_tells_values_difference_share_and_spread() -> None:
    (reason,) = judged(float32_to(NARROW), [run_to(1.2)]).reasons
    assert reason == (
        "loss is 1.2 where float32 has 1: worse by 0.2, 20 % of what float32 learned; between "
        "seeds float32 itself differs by 0.01 (standard deviation), which makes up to 0.061 for "
        "so few."
    )


def test_what_was_too_coarse_asks_for_more_seeds() -> None:
    (reason,) = judged(float32_to(MEDIUM), [run_to(1.3)]).reasons
    assert reason == (
        "loss is 1.3 where float32 has 1: a difference of 0.3, 30 % of what float32 learned, more "
        "than the 0.08 between seeds of float32 (standard deviation), but up to 0.49 may be chance "
        "with so few. Compare with more seeds."
    )


def test_a_difference_that_is_no_number_is_told_without_a_share() -> None:
    half = TrainingRun("float16", 0, (2.0,) * 80 + (NAN,) * 20)
    (reason,) = judged(float32_to(NARROW), [half]).reasons
    assert reason.startswith("loss is nan where float32 has 1: worse by nan; ")
