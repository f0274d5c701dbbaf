"""The study saves reports that are short enough to keep, and tells them in one table."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tf_amp_kit as amp
from tests.benchmarks import study
from tests.benchmarks.study import digest, main, shortened, table
from tf_amp_kit.comparison.timing import Quartiles
from tf_amp_kit.comparison.training.record.parts import (
    Difference,
    MemoryUse,
    PrecisionResult,
    Recommendation,
    StepSpeed,
    TrainingRun,
    Verdict,
)
from tf_amp_kit.comparison.training.record.report import ComparisonReport

PAIR = (np.zeros((4, 2), "float32"), np.ones(4, "int64"))

# float32 learned 2.0; float16 is worse by 0.02 of loss, which is 1 % of that.
DIFFERENCES = (
    Difference("val_loss", 0.3, 0.03, 0.32, 0.02, 0.08, 0.01, learned=2.0),
    Difference("val_accuracy", 0.9, 0.01, 0.89, 0.01, 0.02, 0.0125, learned=0.8),
)
REPORT = ComparisonReport(
    model_name="net",
    machine="2 CPUs",
    batch_size=32,
    num_steps=2,
    seeds=(0,),
    tolerance=0.01,
    measure="val_loss",
    results=(
        PrecisionResult(
            *("float32", "float32", "O0", 0, None, ()),
            speed=StepSpeed(Quartiles(0.004, 0.005, 0.006)),
            memory=MemoryUse(12_000_000, None, 300_000_000),
        ),
        PrecisionResult(
            *("float16", "float16", "O1", 1, Verdict("equal", (), 0.01), DIFFERENCES),
            speed=StepSpeed(Quartiles(0.01, 0.0104, 0.012)),
        ),
    ),
    runs=(TrainingRun("float32", 0, (2.3456789, float("nan"))),),
    recommendation=Recommendation("float32", None, None, ()),
    seconds=1.0,
)


def test_a_digest_tells_other_data() -> None:
    other = (PAIR[0] + 1, PAIR[1])

    assert digest(PAIR, PAIR) == digest(PAIR, PAIR)
    assert digest(PAIR, other) != digest(PAIR, PAIR)
    assert len(digest(PAIR)) == 12


def test_losses_are_kept_to_five_digits() -> None:
    (run,) = shortened(REPORT).runs

    np.testing.assert_array_equal(run.losses, (2.3457, np.nan))


def test_the_table_tells_each_precision_of_each_net() -> None:
    text = table({"CNN": REPORT})

    # A bound of 0.08 is 4 % of what was learned.
    assert text.splitlines()[2:] == [
        "| CNN | float32 | 0.3000 | 0.9000 | - | - | - | 5.0 | - | 300 | 12 |",
        "| CNN | float16 | 0.3200 | 0.8900 | +1.00% | 4.00% | equal | 10.4 | - | - | - |",
    ]


def test_each_row_has_the_columns_of_the_head() -> None:
    without = PrecisionResult("float16", "float16", "O1", 1, Verdict("undecided", (), 0.0), ())
    report = dataclasses.replace(REPORT, results=(REPORT.results[0], without))

    lines = table({"CNN": REPORT, "MLP": report}).splitlines()

    assert len(lines) == 6
    assert {line.count("|") for line in lines} == {len(study.COLUMNS) + 1}


def test_reports_of_other_nets_stay_in_the_folder_and_the_table(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    REPORT.save(tmp_path / "MLP.json")
    monkeypatch.setattr(amp, "compare_precisions", lambda *args, **settings: REPORT)

    assert main(["--nets", "CNN", "--output", str(tmp_path)]) == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["CNN.json", "MLP.json"]
    assert [row.split(" | ")[0] for row in capsys.readouterr().out.splitlines()[2:]] == [
        *("| CNN", "| CNN", "| MLP", "| MLP"),
    ]
    saved = ComparisonReport.load(tmp_path / "CNN.json")
    assert saved.notes[-1].startswith("Data: scikit-learn's digits, moved about. Digest ")
    assert saved.machine == "2 CPUs"


def test_the_study_asks_for_its_own_steps_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        amp, "compare_precisions", lambda *args, **settings: asked.append(settings) or REPORT
    )

    main(["--nets", "MLP", "--in-process"])
    main(["--nets", "CNN", "--steps", "7", "--seeds", "4"])

    kept = [{key: one[key] for key in ("steps", "batch_size", "seeds", "isolate")} for one in asked]
    assert kept == [
        {"steps": 1000, "batch_size": 256, "seeds": 3, "isolate": False},
        {"steps": 7, "batch_size": 32, "seeds": 4, "isolate": True},
    ]
