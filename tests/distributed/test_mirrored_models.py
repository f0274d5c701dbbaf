"""Whole models under MirroredStrategy, whose moving statistics differ per replica."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.processes import Run

both_modes = pytest.mark.parametrize("mode", ["eager", "graph"])
both_fits = pytest.mark.parametrize(
    "case", ["fit bad batch among good", "fit bad batch among good, eager"]
)


def test_half_of_a_batch_that_overflows_in_fit_keeps_every_bit(mirrored: Run):
    seen = mirrored.value("fit half of a batch overflows")
    assert seen["after"] == seen["before"]


def test_half_of_a_batch_that_overflows_in_fit_halves_the_scale_once(mirrored: Run):
    assert mirrored.value("fit half of a batch overflows")["scale"] == 4.0


@both_fits
def test_fit_applies_the_good_batches_around_a_bad_one(mirrored: Run, case: str):
    assert mirrored.value(case)["weights"] == [[[0.25]]] * 2


@both_fits
def test_fit_halves_the_scale_for_one_bad_batch_once(mirrored: Run, case: str):
    assert mirrored.value(case)["scale"] == 4.0


@both_fits
def test_fit_counts_two_iterations_for_three_batches(mirrored: Run, case: str):
    assert mirrored.value(case)["iterations"] == 2


def test_an_optimizer_made_outside_of_the_scope_is_told_to_come_inside(mirrored: Run):
    message = mirrored.value("fit with an optimizer made outside")
    assert "Make it inside strategy.scope()." in message


# Replica 0 sees mean 1 and variance 1, replica 1 mean 6 and variance 4. At
# momentum 0.5 the statistics, from 0 and 1, go half of the way with each step.
GOOD = {"mean": [[0.5], [3.0]], "variance": [[1.0], [2.5]]}
GOOD_TWICE = {"mean": [[0.75], [4.5]], "variance": [[1.0], [3.25]]}


@both_modes
def test_statistics_of_replicas_differ(mirrored: Run, mode: str):
    assert mirrored.value(f"statistics {mode} protected")[0] == GOOD


@both_modes
def test_a_skip_gives_each_replica_its_own_statistics_back(mirrored: Run, mode: str):
    assert mirrored.value(f"statistics {mode} protected")[1] == GOOD


@both_modes
def test_statistics_move_on_from_where_they_were(mirrored: Run, mode: str):
    assert mirrored.value(f"statistics {mode} protected")[2] == GOOD_TWICE


@both_modes
def test_without_protection_a_skip_keeps_what_the_bad_batch_did(mirrored: Run, mode: str):
    assert mirrored.value(f"statistics {mode} exposed")[2]["mean"] == [[0.875], [float("inf")]]


@both_modes
def test_the_step_that_raises_gives_the_statistics_back_first(mirrored: Run, mode: str):
    seen = mirrored.value(f"statistics of the step that raises, {mode}")
    assert seen == {"raised": True, "before": GOOD, "after": GOOD}


both_monitors = pytest.mark.parametrize("case", ["monitor", "monitor, eager"])


@both_monitors
def test_the_monitor_protects_the_statistics_of_each_replica(mirrored: Run, case: str):
    # Two good batches of ones: 0, 0.5, 0.75.
    assert mirrored.value(case)["means"] == [[0.75]] * 2


@both_monitors
def test_the_monitor_logs_the_loss_of_the_applied_steps(mirrored: Run, case: str):
    # The squares of the weights 1 and 0.5.
    assert mirrored.value(case)["loss"] == [0.625]


@both_monitors
def test_the_monitor_logs_one_skip_and_not_one_for_each_replica(mirrored: Run, case: str):
    assert mirrored.value(case)["skipped_steps"] == [1]


@pytest.mark.parametrize("what", ["statistics", "loss"])
def test_fit_ends_as_if_it_never_saw_the_bad_batch(mirrored: Run, what: str):
    seen: dict[str, Any] = mirrored.value("fit saw the bad batch")
    assert seen[what] == mirrored.value("fit never saw the bad batch")[what]


def test_fit_skips_the_bad_batch_alone(mirrored: Run):
    assert mirrored.value("fit saw the bad batch")["last_skipped_step"] == 11
