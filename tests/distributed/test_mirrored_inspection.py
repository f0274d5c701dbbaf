"""Looking into models under MirroredStrategy: the same as without one."""

from __future__ import annotations

import pytest

from tests.distributed.processes import Run

# Its process looks at a model in six ways, and takes most of a minute.
pytestmark = pytest.mark.slow

both_places = pytest.mark.parametrize("where", ["inside", "outside"])


@both_places
def test_a_fault_in_a_mirrored_model_is_found(mirrored: Run, where: str):
    assert mirrored.value(f"find, {where}")["origin"] == ["growth", "Exp", "forward"]


@both_places
def test_weights_of_all_replicas_keep_every_bit(mirrored: Run, where: str):
    assert mirrored.value(f"find, {where}")["is_unchanged"]


@both_places
def test_a_nan_in_mirrored_statistics_is_found_and_stays_no_metric(mirrored: Run, where: str):
    assert mirrored.value(f"find in statistics, {where}") == {
        "path": "bn/moving_variance",
        "reached": ["bn/moving_variance"],
        "notes": [],
    }


@both_places
def test_the_numbers_of_a_mirrored_model_are_those_of_one_replica(mirrored: Run, where: str):
    # Four ones times 0.5. The loss is the mean square: 2 * 0.5 / 4 for each of four outputs.
    assert mirrored.value(f"measure, {where}") == {
        "input @input/0": [4, 1.0],
        "output head": [4, 0.5],
        "gradient head": [4, 0.25],
        "weight head/kernel": [1, 0.5],
        "weight_gradient head/kernel": [1, 1.0],
    }


@both_places
def test_the_gradients_of_a_mirrored_model_are_compared(mirrored: Run, where: str):
    # Powers of two are the same in both precisions.
    assert mirrored.value(f"compare, {where}") == {
        "path": "head/kernel",
        "cosine": 1.0,
        "error": 0.0,
    }


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_what_fails_in_replicas_is_pinned_before_they_run(mirrored: Run, kind: str):
    dtypes = {"clash": "bfloat16", "clash/norm": "float32", "head": "bfloat16"}
    # One step from zero over ones, with a momentum of a half.
    assert mirrored.value(f"cure, {kind}") == {"dtypes": dtypes, "mean": [0.5]}
