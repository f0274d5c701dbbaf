"""What a folder keeps, and gives back as it was."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tf_amp_kit.comparison.training.record.parts import Drift, Evaluation, TrainingRun
from tf_amp_kit.comparison.training.running.folder import Folder
from tf_amp_kit.errors import InputsError

DESCRIPTION = {"num_steps": 10, "kept_at": [0, 10], "pin": True}
RUN = TrainingRun(
    name="float16 O2",
    seed=3,
    losses=(1.0, 0.1, 1 / 3),
    evaluations=(Evaluation(0, {"loss": 2.0, "accuracy": 0.1}), Evaluation(3, {"loss": 1.0})),
    skipped_steps=None,
    loss_scale=32768.0,
    drift=(Drift(3, 0.1, 0.2),),
    seconds=1.5,
    peak_bytes=2**33,
    base_bytes=2**30,
    repeats_exactly=False,
    failure="ValueError: no",
)
WEIGHTS = [np.array([[1.0, math.nan]], "float32"), np.array(7), np.zeros((0, 2)), np.array([True])]
MADE_AS = "float16 O2"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_run_comes_back_as_it_was(folder: Folder) -> None:
    folder.save_run(RUN, MADE_AS)
    assert folder.run("float16 O2", 3, MADE_AS) == RUN


def test_losses_that_are_not_finite_come_back(folder: Folder) -> None:
    folder.save_run(TrainingRun("float16", 0, (math.nan, math.inf, -math.inf)), MADE_AS)
    losses = folder.run("float16", 0, MADE_AS).losses
    assert (math.isnan(losses[0]), losses[1:]) == (True, (math.inf, -math.inf))


@pytest.mark.parametrize(("name", "seed"), [("float16", 3), ("float16 O2", 4), ("float16 O", 23)])
def test_a_run_that_was_not_kept_is_none(folder: Folder, name: str, seed: int) -> None:
    folder.save_run(RUN, MADE_AS)
    assert folder.run(name, seed, MADE_AS) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("float16 a b", "float16 a_b"),
        ("float16 a-1", "float16 a_1"),
        ("float16 über", "float16 _ber"),
        ("float16 a/b", "float16 a b"),
    ],
)
def test_names_that_differ_in_any_letter_are_kept_apart(
    folder: Folder, one: str, other: str
) -> None:
    folder.save_run(TrainingRun(one, 0, (1.0,)), MADE_AS)
    folder.save_run(TrainingRun(other, 0, (2.0,)), MADE_AS)
    assert (folder.run(one, 0, MADE_AS).losses, folder.run(other, 0, MADE_AS).losses) == (
        (1.0,),
        (2.0,),
    )


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    Folder(inner).save_run(TrainingRun("float16 ../../x", 0, (1.0,)), MADE_AS)
    assert [one.name for one in tmp_path.iterdir()] == ["inner"]


def test_weights_come_back_as_they_were(folder: Folder) -> None:
    folder.save_weights("float32", 1, 5, WEIGHTS)
    found = folder.weights("float32", 1, 5)
    assert [(one.dtype, one.shape) for one in found] == [(one.dtype, one.shape) for one in WEIGHTS]


def test_the_values_of_weights_come_back(folder: Folder) -> None:
    folder.save_weights("float32", 1, 5, WEIGHTS)
    for one, other in zip(folder.weights("float32", 1, 5), WEIGHTS, strict=True):
        np.testing.assert_array_equal(one, other)


def test_more_than_ten_weights_keep_their_order(folder: Folder) -> None:
    folder.save_weights("float32", 0, 0, [np.array(i) for i in range(23)])
    assert [int(one) for one in folder.weights("float32", 0, 0)] == list(range(23))


def test_no_weights_are_no_weights(folder: Folder) -> None:
    folder.save_weights("float32", 0, 0, [])
    assert folder.weights("float32", 0, 0) == []


def test_only_kept_weights_are_there(folder: Folder) -> None:
    folder.save_weights("float32", 1, 5, WEIGHTS)
    there = [folder.has_weights("float32", *one) for one in ((1, 5), (1, 6), (2, 5), (15, 5))]
    assert there == [True, False, False, False]


def test_fingerprints_come_back(folder: Folder) -> None:
    folder.save_fingerprints(2, (2**32 - 1, 0, 5))
    assert folder.fingerprints(2) == [2**32 - 1, 0, 5]


def test_an_unfinished_run_comes_back_with_all_that_belongs_to_it(folder: Folder) -> None:
    folder.save_unfinished(RUN, WEIGHTS[:2], [8, 9, 10])
    run, variables, seen = folder.unfinished("float16 O2", 3)
    assert (run, len(variables), int(variables[1]), seen) == (RUN, 2, 7, [8, 9, 10])


def test_without_an_unfinished_run_there_is_none(folder: Folder) -> None:
    assert folder.unfinished("float16", 3) is None


def test_a_finished_run_drops_what_it_was_continued_from(folder: Folder) -> None:
    folder.save_unfinished(RUN, WEIGHTS, [])
    folder.save_run(RUN, MADE_AS)
    assert folder.unfinished("float16 O2", 3) is None


def test_a_finished_run_leaves_unfinished_ones_of_other_seeds(folder: Folder) -> None:
    other = TrainingRun("float16 O2", 4, (1.0,))
    folder.save_unfinished(other, WEIGHTS, [])
    folder.save_run(RUN, MADE_AS)
    assert folder.unfinished("float16 O2", 4)[0] == other


def test_files_of_two_points_in_time_do_not_belong_together(folder: Folder, tmp_path: Path) -> None:
    folder.save_unfinished(RUN, WEIGHTS, [])
    (text,) = tmp_path.glob("unfinished*.json")
    kept = text.read_text()
    folder.save_unfinished(TrainingRun("float16 O2", 3, (1.0,) * 9), WEIGHTS, [])
    # As if the program had been stopped between the first file and the second.
    text.write_text(kept)
    assert folder.unfinished("float16 O2", 3) is None


def test_no_half_written_file_is_left(folder: Folder, tmp_path: Path) -> None:
    folder.save_run(RUN, MADE_AS)
    folder.save_weights("float32", 0, 0, WEIGHTS)
    assert [one.name for one in tmp_path.iterdir() if "tmp" in one.name] == []


# --------------------------------------------------------------------------- description


def test_the_folder_is_made(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "a" / "b")
    folder.describe(DESCRIPTION)
    assert (tmp_path / "a" / "b").is_dir()


def test_the_same_comparison_may_go_on(folder: Folder) -> None:
    folder.describe(DESCRIPTION)
    folder.describe(DESCRIPTION)


def test_another_comparison_is_refused(folder: Folder, tmp_path: Path) -> None:
    folder.describe(DESCRIPTION)
    message = (
        "The folder holds runs of another comparison. Expected num_steps=20. Received: "
        f"{str(tmp_path)!r}, made with num_steps=10. Name another folder, or delete this one."
    )
    with pytest.raises(InputsError, match=re.escape(message)):
        folder.describe({**DESCRIPTION, "num_steps": 20})


def test_what_another_comparison_was_is_not_written_over(folder: Folder, tmp_path: Path) -> None:
    folder.describe(DESCRIPTION)
    with pytest.raises(InputsError):
        folder.describe({**DESCRIPTION, "num_steps": 20})
    (file,) = tmp_path.iterdir()
    assert json.loads(file.read_text()) == DESCRIPTION


@pytest.mark.parametrize("content", ["", "{", "\x00", "{}", '{"made_as": "float16 O2", "run": {}}'])
def test_a_damaged_file_is_told(folder: Folder, tmp_path: Path, content: str) -> None:
    folder.save_run(RUN, MADE_AS)
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    message = (
        "A file of an earlier comparison is damaged. Expected what it kept. Received: "
        f"{str(file)!r}. Name another folder, or delete this one."
    )
    with pytest.raises(InputsError, match=re.escape(message)):
        folder.run("float16 O2", 3, MADE_AS)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 torn"])
def test_damaged_arrays_are_told(folder: Folder, tmp_path: Path, content: bytes) -> None:
    folder.save_weights("float32", 1, 5, WEIGHTS)
    (file,) = tmp_path.iterdir()
    file.write_bytes(content)
    with pytest.raises(InputsError, match=re.escape(f"Received: {str(file)!r}")):
        folder.weights("float32", 1, 5)


def test_a_run_of_another_meaning_of_the_same_name_is_refused(folder: Folder) -> None:
    folder.save_run(RUN, "float16 O1, ['a'] in float32")
    with pytest.raises(InputsError, match="that was made otherwise"):
        folder.run(RUN.name, RUN.seed, "float16 O1, ['b'] in float32")
