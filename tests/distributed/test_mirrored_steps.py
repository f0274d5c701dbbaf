"""Single steps under MirroredStrategy: all replicas apply, or all of them skip."""

from __future__ import annotations

import itertools

import pytest

from tests.distributed.mirrored_steps import BAD_VALUES, subsets
from tests.distributed.processes import Run

ONES = [1.0, 1.0, 1.0]

SKIPS = [
    *(
        f"skip 2 {mode} {bad} {value}"
        for mode, bad, value in itertools.product(("eager", "graph"), subsets(2), BAD_VALUES)
    ),
    *(
        f"skip 3 {mode} {bad} nan"
        for mode, bad in itertools.product(("eager", "graph"), subsets(3))
    ),
    *(f"skip 4 graph {(index,)} inf" for index in range(4)),
]

STUCK = (
    " steps in a row were skipped: in each of them a gradient was not finite. The loss scale is "
)

both_modes = pytest.mark.parametrize("mode", ["eager", "graph"])


def test_the_cases_are_all_of_l1():
    """18 of two replicas, by hand: 2 modes, 3 choices of replicas, 3 values."""
    assert len([case for case in SKIPS if case.startswith("skip 2")]) == 18


@pytest.mark.parametrize("case", SKIPS)
def test_one_bad_replica_keeps_every_weight_on_all(mirrored: Run, case: str):
    num_replicas = int(case.split()[1])
    assert mirrored.value(case)["weights"] == [ONES] * num_replicas


@pytest.mark.parametrize("case", SKIPS)
def test_one_bad_replica_or_many_halve_the_scale_once(mirrored: Run, case: str):
    assert mirrored.value(case)["scale"] == 4.0


@pytest.mark.parametrize("case", SKIPS)
def test_a_skip_counts_as_no_good_step(mirrored: Run, case: str):
    assert mirrored.value(case)["step_counter"] == 0


@pytest.mark.parametrize("case", SKIPS)
def test_a_skip_is_no_iteration_of_the_inner_optimizer(mirrored: Run, case: str):
    assert mirrored.value(case)["iterations"] == 0


@pytest.mark.parametrize("case", SKIPS)
def test_a_skip_is_counted_once_and_not_for_each_replica(mirrored: Run, case: str):
    assert mirrored.value(case)["skipped_steps"] == 1


@both_modes
def test_a_good_step_is_sgd_on_the_sum_of_the_true_gradients(mirrored: Run, mode: str):
    # [1, 2, 3] and [10, 0, -1] at a scale of 8; 1 - 0.5 * [11, 2, 2].
    assert mirrored.value(f"sum {mode}")["weights"] == [[-4.5, 0.0, 0.0]] * 2


@both_modes
def test_a_good_step_is_counted_once_and_not_for_each_replica(mirrored: Run, mode: str):
    assert mirrored.value(f"sum {mode}")["applied_steps"] == 1


@both_modes
def test_finite_gradients_with_an_infinite_sum_are_skipped(mirrored: Run, mode: str):
    assert mirrored.value(f"sum overflows {mode}")["weights"] == [ONES] * 2


@both_modes
def test_the_scale_stays_at_its_minimum_when_the_sum_overflows(mirrored: Run, mode: str):
    assert mirrored.value(f"sum overflows {mode}")["scale"] == 1.0


def test_a_sum_that_just_fits_is_applied(mirrored: Run):
    # 2**126 twice is 2**127; times a learning rate of 2**-120 that is 128.
    assert mirrored.value("sum just fits graph")["weights"] == [[-127.0, 1.0, 1.0]] * 2


@both_modes
def test_after_a_skip_gradients_are_divided_by_the_halved_scale(mirrored: Run, mode: str):
    # 4 / 4 and 8 / 4: 1 - 3.
    assert mirrored.value(f"good after bad {mode}")["weights"] == [[-2.0, -2.0, -2.0]] * 2


@both_modes
def test_clipping_cannot_hide_the_infinity_of_another_replica(mirrored: Run, mode: str):
    first, _ = mirrored.value(f"clipped by hand {mode}")["weights of steps"]
    assert first == [ONES] * 2


@both_modes
def test_clipped_gradients_are_applied_undivided(mirrored: Run, mode: str):
    # At scale 4: [8, 2, 0.5] on both, clipped to [1, 1, 0.5].
    _, second = mirrored.value(f"clipped by hand {mode}")["weights of steps"]
    assert second == [[-1.0, -1.0, 0.0]] * 2


def test_the_scale_grows_once_per_interval_and_not_for_each_replica(mirrored: Run):
    assert mirrored.value("growth") == [8.0, 16.0, 16.0, 32.0]


@both_modes
def test_too_many_skips_raise_at_exactly_the_step_that_is_one_too_many(mirrored: Run, mode: str):
    errors = mirrored.value(f"stuck {mode}")["errors"]
    assert [error is not None for error in errors] == [False, False, True, True]


def test_too_many_skips_raise_the_packages_error_in_eager_mode(mirrored: Run):
    assert mirrored.value("stuck eager")["errors"][2]["class"] == "TrainingStuckError"


def test_too_many_skips_raise_tensorflows_error_in_a_graph(mirrored: Run):
    assert mirrored.value("stuck graph")["errors"][2]["class"] == "InvalidArgumentError"


@both_modes
def test_the_error_says_how_many_steps_were_skipped(mirrored: Run, mode: str):
    text = mirrored.value(f"stuck {mode}")["errors"][2]["text"]
    assert f"3{STUCK}" in text.replace("[3] [", "3").replace("[", "").replace("]", "")


@both_modes
def test_the_step_that_raises_is_counted_before(mirrored: Run, mode: str):
    assert mirrored.value(f"stuck {mode}")["skipped_steps"] == 4


@both_modes
def test_the_step_that_raises_changes_no_weight(mirrored: Run, mode: str):
    assert mirrored.value(f"stuck {mode}")["weights"] == [ONES] * 2


def test_a_call_across_replicas_is_refused(mirrored: Run):
    assert mirrored.value("across replicas") == {
        "class": "EnvironmentUnfit",
        "text": "Gradients are applied on each replica. Expected a call in replica context. "
        "Received: a call across replicas. Call it inside strategy.run().",
    }


def test_replicas_that_cannot_meet_are_refused(mirrored: Run):
    assert mirrored.value("without merge calls") == {
        "class": "EnvironmentUnfit",
        "text": "Replicas that reduce without a merge call cannot agree on a skip. Expected one "
        "replica, or a strategy with merge calls. Received: 2 replicas of MirroredStrategy. "
        "Leave jit_compile off, so that they meet in merge calls.",
    }
