"""Gradients along a float32 run: at its weights, on its batches."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.comparison.training.given import SEED, X, Y, candidate, dense, run_of, stateful
from tf_amp_kit.comparison.training.gradients import gradients_along
from tf_amp_kit.comparison.training.record.parts import GradientPoint
from tf_amp_kit.comparison.training.running.run import Run

# Five batches are an epoch: the last point is in the second one.
KEPT = (0, 3, 7)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A float32 run whose weights were kept at three points."""
    run = run_of(stateful, "fp32", tmp_path, num_steps=7, kept_at=KEPT)
    run.make()
    return run


def points_of(run: Run, precision: str, steps: Any) -> tuple[GradientPoint, ...]:
    return gradients_along(run.builder, candidate(precision), run.train, run.folder, SEED, steps)


def batch_after(step: int) -> tuple[Any, Any]:
    """The batch that a run trains on after some steps."""
    epoch, number = divmod(step, 5)
    rows = np.random.default_rng((SEED, epoch)).permutation(40)[number * 8 : number * 8 + 8]
    return X[rows], Y[rows]


def numbers_of(comparison: Any) -> list[str]:
    """As text, in which NaN equals NaN."""
    return [repr((one.path, one.cosine, one.relative_error)) for one in comparison.pairs]


def test_there_is_a_point_for_each_step(run: Run) -> None:
    assert [one.step for one in points_of(run, "bf16", KEPT)] == [0, 3, 7]


def test_steps_whose_weights_were_not_kept_are_left_out(run: Run) -> None:
    assert [one.step for one in points_of(run, "bf16", (0, 2, 3, 5))] == [0, 3]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("step", KEPT)
def test_gradients_are_those_of_the_kept_weights_on_the_next_batch(
    run: Run, precision: str, step: int
) -> None:
    (point,) = points_of(run, precision, (step,))
    with run.builder.model(candidate(precision), SEED, next(run.train.steps(SEED))) as model:
        model.set_weights(run.folder.weights("float32", SEED, step))
        expected = amp.compare_gradients(
            model, batch_after(step), precision=precision, batch_size=None, verbose=0
        )
    assert numbers_of(point.comparison) == numbers_of(expected)


def test_points_differ_along_the_run(run: Run) -> None:
    first, second, third = (numbers_of(one.comparison) for one in points_of(run, "bf16", KEPT))
    assert first != second != third != first


def test_one_point_does_not_depend_on_those_before(run: Run) -> None:
    *_, last = points_of(run, "bf16", KEPT)
    (alone,) = points_of(run, "bf16", (7,))
    assert numbers_of(last.comparison) == numbers_of(alone.comparison)


def test_without_steps_there_are_no_points(run: Run) -> None:
    assert points_of(run, "bf16", ()) == ()


def test_nothing_that_was_kept_changes(run: Run, tmp_path: Path) -> None:
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    points_of(run, "bf16", KEPT)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_batches_of_a_dataset_are_those_of_its_order(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    run = run_of(dense, "fp32", tmp_path, num_steps=3, kept_at=(0, 3), data=dataset)
    run.make()
    (point,) = points_of(run, "bf16", (3,))
    batch = next(itertools.islice(dataset, 3, None))
    with run.builder.model(candidate("bf16"), SEED, next(run.train.steps(SEED))) as model:
        model.set_weights(run.folder.weights("float32", SEED, 3))
        expected = amp.compare_gradients(model, batch, precision="bf16", batch_size=None, verbose=0)
    assert numbers_of(point.comparison) == numbers_of(expected)
