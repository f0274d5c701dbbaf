"""Inner optimizers under MirroredStrategy: a skip leaves no trace in what they keep."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.mirrored_optimizers import OPTIMIZERS
from tests.distributed.processes import Run

ONES = [1.0, 1.0, 1.0]

# Each of the two replicas has the true gradient [3, 4, 0] in two good steps.
BY_HAND = {
    # The gradient clipped on each replica is [0.6, 0.8, 0].
    "clipnorm": [-1.4, -2.2, 1.0],
    "global_clipnorm": [-1.4, -2.2, 1.0],
    # [1, 1, 0] on each replica.
    "clipvalue": [-3.0, -3.0, 1.0],
    # 1 * 0.75 - 0.5 * 6 = -2.25, times 0.75, less 3; with 8 in the place of 6 likewise.
    "weight_decay": [-4.6875, -6.4375, 0.5625],
    # Velocity -6, then 0.5 * -6 - 6 = -9; -8, then -12.
    "momentum": [-14.0, -19.0, 1.0],
    "use_ema": [-11.0, -15.0, 1.0],
    # 1 * 0.75 - 0.5, times 0.75, less 0.5: Adam's steps have the learning rate's size.
    "adamw": [-0.3125, -0.3125, 0.5625],
}


@pytest.mark.parametrize("inner", OPTIMIZERS)
def test_a_skip_keeps_every_bit_of_weights_slots_and_iterations(mirrored: Run, inner: str):
    seen = mirrored.value(f"bad between good {inner}")
    assert seen["after"] == seen["before"]


@pytest.mark.parametrize("inner", OPTIMIZERS)
def test_two_good_steps_around_a_skip_are_the_inner_optimizers_own(mirrored: Run, inner: str):
    # Adam's epsilon of 1e-7 shows.
    approximate = pytest.approx(BY_HAND[inner], abs=2e-5)
    assert mirrored.value(f"bad between good {inner}")["weights"] == [approximate] * 2


@pytest.mark.parametrize("inner", OPTIMIZERS)
def test_only_applied_steps_are_iterations(mirrored: Run, inner: str):
    assert mirrored.value(f"bad between good {inner}")["iterations"] == 2


def test_the_average_of_weights_ignores_a_skip(mirrored: Run):
    # Weights 0.75 and, after the scale was halved, 0.25: their average last.
    expected = [[[value] * 3] * 2 for value in (0.75, 0.75, 0.5)]
    assert mirrored.value("average") == expected


def test_a_global_norm_spans_all_variables(mirrored: Run):
    expected = [[pytest.approx([last, 1.0, 1.0])] * 2 for last in (-0.2, -0.6)]
    assert mirrored.value("global norm of two variables") == expected


def test_finite_gradients_with_an_infinite_global_norm_are_skipped(mirrored: Run):
    assert mirrored.value("global norm overflows")["weights"] == [ONES] * 2


@pytest.mark.parametrize("bad", [(0,), (1,), (0, 1)])
def test_bad_slices_keep_every_row(mirrored: Run, bad: tuple[int, ...]):
    assert mirrored.value(f"sparse bad {bad}")["weights"] == [[[1.0, 1.0]] * 4] * 2


def test_slices_with_an_infinite_sum_over_replicas_keep_every_row(mirrored: Run):
    # Twice 1.7e38 on replica 0 is finite, and once more from replica 1 is not.
    assert mirrored.value("sparse sum overflows")["weights"] == [[[1.0, 1.0]] * 4] * 2


def test_slices_of_all_replicas_add_up(mirrored: Run):
    # Row 1 is read twice on replica 0 and once on 1, row 3 once on 1.
    rows = [[1.0, 1.0], [-2.0, -2.0], [1.0, 1.0], [0.0, 0.0]]
    assert mirrored.value("sparse bad ()")["weights"] == [rows] * 2


def test_a_variable_without_gradient_stays_when_others_move(mirrored: Run):
    assert mirrored.value("none among the gradients")["without gradient"] == [ONES] * 2


def test_a_variable_with_gradient_moves_beside_one_without(mirrored: Run):
    assert mirrored.value("none among the gradients")["weights"] == [[-1.0, -1.0, -1.0]] * 2


def test_a_bad_gradient_is_seen_beside_none(mirrored: Run):
    assert mirrored.value("none among bad gradients")["weights"] == [ONES] * 2


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_the_first_step_builds_the_optimizer(mirrored: Run, mode: str):
    assert mirrored.value(f"without build {mode}")["weights"] == [[-1.0, -1.0, -1.0]] * 2


def test_a_skip_keeps_accumulated_gradients(mirrored: Run):
    seen = mirrored.value("accumulation eager")
    assert seen["after"] == seen["before"]


def test_accumulated_gradients_are_averaged_over_steps_and_added_over_replicas(mirrored: Run):
    # True gradients of 1 and 3, twice.
    assert mirrored.value("accumulation eager")["weights"] == [[-3.0, -3.0, -3.0]] * 2


# What plain Keras cannot do in a graph under MirroredStrategy. Where a test
# fails because plain Keras can, ours should be able to as well.
UNABLE = {
    "gradient_accumulation_steps": ("RuntimeError", "`merge_call` called while defining"),
    "ema_overwrite_frequency": ("RuntimeError", "`merge_call` called while defining"),
    "slots without build": ("InvalidArgumentError", "You must feed a value for placeholder"),
    "steps_per_execution": ("InvalidArgumentError", "You must feed a value for placeholder"),
}


@pytest.mark.parametrize("kind", UNABLE)
@pytest.mark.parametrize("optimizer", ["plain", "scaled"])
def test_what_keras_cannot_do_fails_likewise(mirrored: Run, optimizer: str, kind: str):
    error: dict[str, Any] | None = mirrored.value(f"unable {kind}")[optimizer]
    name, text = UNABLE[kind]
    assert error is not None
    assert (error["class"], text in error["text"]) == (name, True)
