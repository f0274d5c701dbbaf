"""How the record of a comparison prints itself, and comes back from a file; made by hand."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.comparison.training.reports import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    RUNS,
    report_of,
    run_of,
    small_report,
)
from tests.reporting.records import comparison_of
from tf_amp_kit.comparison.training.record.parts import (
    Drift,
    GradientPoint,
    MemoryUse,
    Recommendation,
    StepSpeed,
)
from tf_amp_kit.comparison.training.record.report import INTERRUPTION, ComparisonReport
from tf_amp_kit.errors import ReportError

TEXT = """\
Recommended for 'net': bfloat16 with jit_compile.
It trains as well as float32, and a step takes half the time.

bfloat16, 2 layers in float32: equal. Worse by 0.3 % of what float32 learned, within its own spread.
float16 O2, 1 layer in float32: worse. It gave no finite loss with seed 1.

Quality at the end of 4 steps, mean over 2 seeds. Bound: what float32 itself differs by between
seeds; share: the worsening over what float32 learned

Measure       Precision       Value  Spread   Worsening  Bound       Share
--------------------------------------------------------------------------
val_loss      float32           0.5   0.013           -      -           -
              bfloat16        0.503       -       0.003  0.025       0.3 %
              float16 O2  undefined       -  not finite  0.025  not finite
val_accuracy  float32           0.9    0.01           -      -           -
              bfloat16         0.91       -       -0.01   0.02      -2.5 %
              float16 O2        0.7       -         0.2   0.02      50.0 %

The runs. Skipped: steps; apart: the weights at the end from those of float32, over their norm; of
the way: the same over the way that float32 went

Precision   Runs  Ended early  Skipped  Loss scale            Apart      Of the way
-----------------------------------------------------------------------------------
float32        3            -        0           1                -               -
bfloat16       2            -        0           1  0.001 to 0.0015  2.0 % to 3.0 %
float16 O2     2            1        1       16384             0.01          50.0 %

Weight gradients of one batch, against float32

Precision  Step  Cosine  Relative error  Vanished
-------------------------------------------------
bfloat16      0       1               0       0 %
bfloat16      4     0.6             0.8    66.7 %

Time of a whole train step, median. Speed: times that of float32 without jit_compile

Precision   jit_compile  ms per step     Quartiles  Compile s  Examples/s  Speed
--------------------------------------------------------------------------------
float32     no                    20      18 to 22        0.5        1600   1.00
float32     yes                   16  14.4 to 17.6         12        2000   1.25
bfloat16    no                  12.5  11.3 to 13.8        0.5        2560   1.60
bfloat16    yes                    8    7.2 to 8.8         10        4000   2.50
float16 O2  no                    40      36 to 44        0.5         800   0.50
float16 O2  yes                    -             -          -           -      -
float16 O2 with jit_compile has no times: XLA cannot compile this model.

Largest memory of training. Ratio: to float32; largest batch: by the estimate

Precision   Estimated  Ratio  Measured  Ratio  Largest batch
------------------------------------------------------------
float32       100 MiB   1.00   120 MiB   1.00            512
bfloat16     62.0 MiB   0.62  90.0 MiB   0.75            800
float16 O2   62.0 MiB   0.62         -      -            800

float16 O2 with seed 1 ended after 2 steps: The loss was NaN.
Made on 2 CPUs (TensorFlow 2.21.0, Keras 3.12.0), with seeds 0 and 1 (float32 with 2 too, for its
    spread), 4 steps of 32 samples, in 12.3 s. The verdicts are about val_loss; tolerance: 1.0 % of
    what float32 learned.
Note: Something was seen."""

SMALL_TEXT = """\
Recommended for 'net': stay in float32.
Nothing was decided.

bfloat16: undecided. 4 steps are too few.

Quality at the end of 4 steps. Bound: what float32 itself differs by between seeds; share: the
worsening over what float32 learned

Measure  Precision  Value  Spread  Worsening  Bound   Share
-----------------------------------------------------------
loss     float32      0.5    0.01          -      -       -
         bfloat16   0.503       -      0.003   0.05  20.0 %

Made on 2 CPUs (TensorFlow 2.21.0, Keras 3.12.0), with seed 0, 4 steps of 32 samples, in 12.3 s. The
    verdicts are about loss; tolerance: 1.0 % of what float32 learned."""


def paragraphs(report: ComparisonReport) -> list[str]:
    """What is printed, every paragraph and table on one line."""
    return [" ".join(one.split()) for one in str(report).split("\n\n")]


def row_of(report: ComparisonReport, start: str, title: str) -> list[str]:
    """The cells of the row that starts like this, in the table after a title."""
    parts = str(report).split("\n\n")
    table = parts[next(i for i, one in enumerate(parts) if one.startswith(title)) + 1]
    line = next(line for line in table.splitlines() if line.startswith(start))
    return re.split(r"\s{2,}", line)


def saved(report: ComparisonReport, folder: Path) -> Path:
    path = folder / "report.json"
    report.save(path)
    return path


def test_the_whole_text_of_a_report_with_every_table_is_as_shown() -> None:
    assert str(report_of()) == TEXT


def test_the_whole_text_of_a_report_without_times_and_memory_is_as_shown() -> None:
    assert str(small_report()) == SMALL_TEXT


def test_float32_is_recommended_as_what_to_stay_in() -> None:
    report = report_of(recommendation=Recommendation("float32", False, None, ()))
    assert paragraphs(report)[0] == ("Recommended for 'net': stay in float32 without jit_compile.")


def test_a_measure_that_is_not_judged_is_told_apart() -> None:
    loss, accuracy = BFLOAT16.differences
    result = replace(BFLOAT16, differences=(loss, replace(accuracy, is_judged=False)))
    report = report_of(results=(FLOAT32, result))
    rows = [line for line in str(report).splitlines() if line.startswith(" " * 14 + "bfloat16")]
    assert [row.split()[-1] for row in rows] == ["yes", "no"]


def test_a_spread_that_one_run_cannot_tell_is_unknown() -> None:
    loss = replace(BFLOAT16.differences[0], spread=math.inf, bound=math.inf)
    report = report_of(results=(FLOAT32, replace(BFLOAT16, differences=(loss,))))
    cells = row_of(report, "val_loss", "Quality at the end")
    assert cells == ["val_loss", "float32", "0.5", "unknown", "-", "-", "-"]


def test_without_loss_scaling_nothing_is_said_of_it() -> None:
    runs = [run for run in RUNS if run.name != FLOAT16.name]
    report = report_of(results=(FLOAT32, BFLOAT16), runs=tuple(runs))
    assert row_of(report, "Precision", "The runs.") == ["Precision", "Runs", "Apart", "Of the way"]


def test_skipped_steps_that_nobody_counted_are_no_zero() -> None:
    uncounted = run_of("bfloat16", 0, (1,), skipped_steps=None, loss_scale=8.0)
    report = small_report(runs=(run_of("float32", 0, (1,)), uncounted))
    assert row_of(report, "bfloat16", "The runs.") == ["bfloat16", "1", "-", "8"]


def test_a_drift_that_is_undefined_in_one_run_is_that_of_the_others() -> None:
    drift = Drift(4, 0.5, 0.25)
    undefined = replace(drift, of_the_way=math.nan)
    runs = [run_of("bfloat16", i, (1,), drift=(one,)) for i, one in enumerate((undefined, drift))]
    report = small_report(runs=(run_of("float32", 0, (1,)), *runs))
    assert row_of(report, "bfloat16", "The runs.") == ["bfloat16", "2", "0.5", "25.0 %"]


def test_gradients_that_are_not_finite_are_counted() -> None:
    point = GradientPoint(2, comparison_of({"w": ([3, 4], [3, math.inf])}))
    report = report_of(results=(FLOAT32, replace(BFLOAT16, gradients=(point,))))
    cells = row_of(report, "bfloat16", "Weight gradients")
    assert cells == ["bfloat16", "2", "undefined", "not finite", "0 %", "1"]


def test_the_speed_is_against_float32_with_jit_compile_where_that_alone_was_timed() -> None:
    results = [replace(one, speed=None) for one in (FLOAT32, BFLOAT16)]
    report = report_of(results=tuple(results))
    title = "Time of a whole train step, median. Speed: times that of float32 with jit_compile"
    cells = row_of(report, "bfloat16", title)
    assert (cells[1], cells[-1]) == ("yes", "2.00")


def test_without_jit_compile_nothing_is_said_of_it() -> None:
    results = [replace(one, jit_speed=None) for one in (FLOAT32, BFLOAT16)]
    text = str(
        report_of(results=tuple(results), recommendation=Recommendation("x", None, None, ()))
    )
    assert "jit_compile" not in text


def test_no_speed_is_told_where_float32_has_no_times() -> None:
    failed = replace(FLOAT32, speed=StepSpeed(None, failure="out of memory"), jit_speed=None)
    report = report_of(results=(failed, replace(BFLOAT16, jit_speed=None)))
    assert row_of(report, "bfloat16", "Time of a")[-1] == "2560"
    assert "float32 has no times: out of memory." in str(report)


def test_a_memory_that_nobody_knows_has_no_table() -> None:
    unknown = MemoryUse(None, None, None)
    results = [replace(one, memory=unknown) for one in (FLOAT32, BFLOAT16)]
    assert "memory" not in str(report_of(results=tuple(results)))


def test_a_failure_that_the_verdict_tells_is_not_told_again() -> None:
    (told,) = FLOAT16.verdict.reasons  # type: ignore[union-attr]
    runs = (*RUNS[:-1], replace(RUNS[-1], failure=told))
    assert str(report_of(runs=runs)).count(told.rstrip(".")) == 1


def test_what_repeats_bit_for_bit_is_told_apart_from_what_does_not() -> None:
    runs = (
        run_of("float32", 0, (1,), repeats_exactly=True),
        run_of("bfloat16", 0, (1,), repeats_exactly=True),
        run_of("bfloat16", 1, (1,), repeats_exactly=False),
    )
    assert paragraphs(small_report(runs=runs))[-1].startswith(
        "The first steps, done again, gave the same losses bit for bit in float32. "
        "The first steps, done again, gave other losses in bfloat16: some operation there is not "
        "deterministic."
    )


def test_its_short_form_has_the_verdicts() -> None:
    assert repr(report_of()) == "<ComparisonReport of 'net', bfloat16 equal, float16 O2 worse>"


def test_a_notebook_shows_sentences_and_tables_with_names_escaped() -> None:
    html = report_of(model_name="<b>")._repr_html_()
    assert html.startswith("<p>Recommended for &#x27;&lt;b&gt;&#x27;: bfloat16 with jit_compile.")
    assert html.count("<table>") == 5
    assert html.endswith("<p>Note: Something was seen.</p>")


def test_strict_json_has_null_for_what_is_not_finite() -> None:
    content = json.loads(report_of().to_json(), parse_constant=pytest.fail)
    assert content["runs"][5]["losses"] == [None, 4, 3, 2]


def test_a_loaded_report_equals_the_saved_one_gradients_and_nan_included(tmp_path: Path) -> None:
    loaded = ComparisonReport.load(saved(report_of(), tmp_path))
    assert loaded == report_of()
    assert math.isnan(loaded.runs[5].losses[0])
    assert loaded.results[1].gradients == BFLOAT16.gradients
    assert str(loaded) == TEXT


def test_a_saved_report_is_strict_json(tmp_path: Path) -> None:
    text = saved(report_of(), tmp_path).read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["runs"][5]["losses"] == ["NaN", 4, 3, 2]


def test_reports_that_differ_in_one_loss_are_not_equal() -> None:
    changed = (replace(RUNS[0], losses=(4, 3, 2, 1.5)), *RUNS[1:])
    assert report_of(runs=changed) != report_of()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "no JSON object"),
        ('{"format": "tf_amp_kit plan", "version": 1}', "format 'tf_amp_kit plan', version 1"),
        ('{"format": "tf_amp_kit comparison", "version": 1}', "no 'model_name'"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    message = (
        "The file holds no comparison of precisions. Expected JSON that `ComparisonReport.save` "
        f"wrote, version 1. Received: {str(path)!r} ({what})."
    )
    with pytest.raises(ReportError, match=re.escape(message)):
        ComparisonReport.load(path)


def test_a_damaged_field_is_named(tmp_path: Path) -> None:
    path = saved(report_of(), tmp_path)
    path.write_text(path.read_text().replace('"seed": 0', '"seed": "zero"'), encoding="utf-8")
    with pytest.raises(ReportError, match=re.escape("(report/runs/seed is 'zero').")):
        ComparisonReport.load(path)


@pytest.mark.parametrize(("notes", "is_interrupted"), [((), False), ((INTERRUPTION,), True)])
def test_a_report_tells_whether_it_was_interrupted(notes, is_interrupted):
    assert small_report(notes=notes).is_interrupted == is_interrupted
