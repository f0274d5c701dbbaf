"""The figures of a comparison of precisions, read back from what is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from tests.comparison.training.reports import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    RUNS,
    evaluation,
    report_of,
    run_of,
    small_report,
)
from tests.reporting.records import bars, comparison_of, right_titles, vertical_lines
from tf_amp_kit.comparison.training.record.parts import GradientPoint, MemoryUse, TrainingRun
from tf_amp_kit.comparison.training.record.report import ComparisonReport
from tf_amp_kit.errors import SelectionError
from tf_amp_kit.reporting.comparison_plots import (
    plot_costs,
    plot_curves,
    plot_gradient_histograms,
)

BLUE, ORANGE, RED = "#0072b2", "#e69f00", "#d55e00"
NAN = math.nan


def two(*runs: TrainingRun, **changes: Any) -> ComparisonReport:
    """A report of float32 and bfloat16 with these runs."""
    return small_report(runs=runs, **changes)


def curve(axes: Any, colour: str) -> list[list[float]]:
    """The points of a precision's line; those that are not drawn have NaN."""
    lines = [
        line for line in axes.lines if line.get_linestyle() != "None" and len(line.get_xdata())
    ]
    line = next(one for one in reversed(lines) if to_hex(one.get_color()) == colour)
    return [[float(x), float(y)] for x, y in line.get_xydata()]


def marks(axes: Any, marker: str) -> list[list[float]]:
    return [
        point
        for line in axes.lines
        if line.get_marker() == marker
        for point in line.get_xydata().tolist()
    ]


def band(axes: Any) -> tuple[list[float], list[float]]:
    """The lower and the upper edge of the band, from left to right."""
    vertices = axes.collections[0].get_paths()[0].vertices
    steps = sorted(set(vertices[:, 0].tolist()))
    edges = [[y for x, y in vertices.tolist() if x == step] for step in steps]
    return [min(one) for one in edges], [max(one) for one in edges]


def words(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_curve_is_the_mean_over_the_seeds() -> None:
    runs = [run_of("float32", seed, losses) for seed, losses in ((0, (4, 2)), (1, (2, 1)))]
    axes = plot_curves(two(*runs, seeds=(0, 1))).axes[0]
    assert curve(axes, BLUE) == [[1, 3], [2, 1.5]]


def test_a_seed_that_float32_alone_has_counts_for_the_band_and_not_for_the_curve() -> None:
    runs = [run_of("float32", seed, (4.0 + seed,)) for seed in (0, 1, 2)]
    axes = plot_curves(two(*runs)).axes[0]
    # The standard deviation of 4, 5 and 6 is 1.
    assert (curve(axes, BLUE), band(axes)) == ([[1, 4]], ([3], [5]))


def test_one_run_of_float32_has_no_band() -> None:
    figure = plot_curves(small_report())
    assert not any(axes.collections for axes in figure.axes)
    assert legend(figure) == ["float32", "bfloat16"]


def test_the_difference_is_that_to_float32_with_the_same_seed() -> None:
    runs = (
        run_of("float32", 0, (4, 2)),
        run_of("float32", 1, (8, 4)),
        run_of("bfloat16", 0, (4, 2.5)),
        run_of("bfloat16", 1, (9, 4.5)),
    )
    axes = plot_curves(two(*runs, seeds=(0, 1))).axes[1]
    assert curve(axes, ORANGE) == [[1, 0.5], [2, 0.5]]


def test_the_band_of_the_differences_is_around_zero() -> None:
    runs = [run_of("float32", seed, (4.0 + seed,)) for seed in (0, 1, 2)]
    axes = plot_curves(two(*runs, run_of("bfloat16", 0, (4,)))).axes[1]
    assert band(axes) == ([-1], [1])


def test_long_curves_are_smoothed_and_the_title_tells() -> None:
    losses = [float(step % 2) for step in range(80)]
    runs = run_of("float32", 0, losses), run_of("bfloat16", 0, losses)
    axes = plot_curves(two(*runs)).axes[0]
    assert axes.get_title("left") == "Training loss, mean over 2 steps"
    assert {y for _, y in curve(axes, BLUE)[:-1]} == {0.5}


def test_a_skipped_step_counts_in_neither_loss_of_a_difference() -> None:
    losses = [80.0 - step for step in range(80)]
    half = [NAN, *losses[1:]]
    runs = run_of("float32", 0, losses), run_of("bfloat16", 0, half, skipped_steps=1)
    points = curve(plot_curves(two(*runs)).axes[1], ORANGE)
    assert {y for _, y in points} == {0}


def test_skipped_steps_have_ticks_and_no_cross() -> None:
    half = run_of("bfloat16", 0, (NAN, 3, 2, NAN), skipped_steps=2)
    figure = plot_curves(two(run_of("float32", 0, (4, 3, 2, 1)), half))
    axes = figure.axes[0]
    assert [x for x, _ in marks(axes, "|")] == [1, 4]
    assert (marks(axes, "X"), legend(figure)[-1]) == ([], "skipped step")


def test_a_run_that_is_not_finite_any_more_has_a_cross_where_it_was_last() -> None:
    half = run_of("bfloat16", 0, (4, 3, NAN, NAN))
    figure = plot_curves(two(run_of("float32", 0, (4, 3, 2, 1)), half))
    assert marks(figure.axes[0], "X") == [[2, 3]]
    assert legend(figure)[-1] == "run ended, or not finite"


def test_a_run_that_was_never_finite_has_its_cross_in_the_upper_corner() -> None:
    half = run_of("bfloat16", 0, (NAN, NAN))
    axes = plot_curves(two(run_of("float32", 0, (4, 3)), half)).axes[0]
    (cross,) = [line for line in axes.lines if line.get_marker() == "X"]
    assert cross.get_transform() == axes.get_xaxis_transform()
    assert cross.get_xydata().tolist() == [[1, 1]]


def test_a_run_that_failed_has_a_cross_at_its_last_step() -> None:
    half = run_of("bfloat16", 0, (4, 3), failure="Interrupted.")
    axes = plot_curves(two(run_of("float32", 0, (4, 3, 2)), half)).axes[0]
    assert (marks(axes, "X"), curve(axes, ORANGE)[:2]) == ([[2, 3]], [[1, 4], [2, 3]])


def test_where_a_run_leaves_the_mean_its_curve_has_a_gap() -> None:
    runs = run_of("bfloat16", 0, (4, 90, NAN)), run_of("bfloat16", 1, (4, 10, 2))
    axes = plot_curves(two(run_of("float32", 0, (4, 3, 2)), *runs, seeds=(0, 1))).axes[0]
    points = np.array(curve(axes, ORANGE))
    assert points[:, 1] == pytest.approx([4, 50, NAN, 2], nan_ok=True)


def test_validation_is_drawn_beside_with_its_own_differences() -> None:
    runs = (
        run_of("float32", 0, (4, 3), evaluations=(evaluation(2, 0.5, 0.9),)),
        run_of("bfloat16", 0, (4, 3), evaluations=(evaluation(2, 0.75, 0.8),)),
    )
    above, below = plot_curves(two(*runs)).axes[1::2]
    assert above.get_title("left") == "Validation loss"
    assert (curve(above, ORANGE), curve(below, ORANGE)) == ([[2, 0.75]], [[2, 0.25]])


def test_another_metric_can_be_drawn_beside() -> None:
    axes = plot_curves(report_of(), metric="accuracy").axes[1]
    assert axes.get_title("left") == "Validation accuracy"
    assert curve(axes, ORANGE) == [[4, pytest.approx(0.91)]]


@pytest.mark.parametrize(
    ("report", "known"), [(report_of(), "'loss', 'accuracy'"), (small_report(), "there are none")]
)
def test_a_metric_that_was_not_measured_is_refused(report: ComparisonReport, known: str) -> None:
    message = (
        "Unknown metric. Expected one of those on the validation data: "
        f"{known}. Received: metric='f1'."
    )
    with pytest.raises(SelectionError, match=re.escape(message)):
        plot_curves(report, metric="f1")


def test_losses_over_two_decades_have_a_logarithmic_axis() -> None:
    runs = run_of("float32", 0, (100, 1)), run_of("bfloat16", 0, (100, 1))
    assert plot_curves(two(*runs)).axes[0].get_yscale() == "log"


def test_a_difference_that_dwarfs_the_others_leaves_them_visible() -> None:
    runs = (
        run_of("float32", 0, (4, 3)),
        run_of("bfloat16", 0, (4.01, 3.01)),
        run_of(FLOAT16.name, 0, (40, 30)),
    )
    results = (FLOAT32, BFLOAT16, FLOAT16)
    assert plot_curves(two(*runs, results=results)).axes[1].get_yscale() == "symlog"


def test_float32_alone_has_no_differences() -> None:
    report = small_report(results=(FLOAT32,), runs=(run_of("float32", 0, (2, 1)),))
    assert words(plot_curves(report).axes[1]) == ["no other precision"]


def test_six_precisions_have_six_colours() -> None:
    results = [replace(FLOAT32, name=f"float{i}") for i in range(6)]
    runs = [run_of(one.name, 0, (2, 1)) for one in results]
    axes = plot_curves(small_report(results=tuple(results), runs=tuple(runs))).axes[0]
    assert len({line.get_color() for line in axes.lines}) == 6


def test_the_bars_of_times_are_the_medians_with_and_without_jit_compile() -> None:
    axes = plot_costs(report_of(results=(FLOAT32, BFLOAT16))).axes[0]
    lengths = [bar.get_width() for bar in axes.patches]
    assert lengths == pytest.approx([20, 16, 12.5, 8])
    assert words(axes) == ["20 ms", "16 ms", "12.5 ms", "8 ms"]


def test_the_whiskers_go_from_quartile_to_quartile() -> None:
    axes = plot_costs(report_of(results=(FLOAT32,))).axes[0]
    assert axes.lines[0].get_xdata() == pytest.approx([18, 22])


def test_what_could_not_be_timed_has_words_for_a_bar() -> None:
    axes = plot_costs(report_of(results=(FLOAT16,))).axes[0]
    assert words(axes) == ["40 ms", "with jit_compile: XLA cannot compile this model"]


def test_a_long_failure_is_cut_short() -> None:
    failure = "Something went wrong " * 10
    result = replace(FLOAT32, jit_speed=None, speed=replace(FLOAT16.jit_speed, failure=failure))
    (text,) = words(plot_costs(report_of(results=(result,))).axes[0])
    assert text == "without jit_compile: Something went wrong Something went wrong …"


def test_the_bars_of_memory_are_in_mib_with_the_largest_batch() -> None:
    axes = plot_costs(report_of(results=(FLOAT32, FLOAT16))).axes[1]
    assert [bar.get_width() for bar in axes.patches] == [100, 120, 62]
    assert words(axes) == ["100 MiB, largest batch 512", "120 MiB", "62.0 MiB, largest batch 800"]


def test_large_memory_is_in_gib() -> None:
    result = replace(FLOAT32, memory=MemoryUse(8 * 2**30, None, None))
    axes = plot_costs(report_of(results=(result,))).axes[1]
    assert ([bar.get_width() for bar in axes.patches], axes.get_xlabel()) == ([8], "GiB")


def test_without_times_and_memory_the_figure_says_so() -> None:
    left, right = plot_costs(small_report()).axes
    assert (words(left), words(right)) == (["no step was timed"], ["no memory is known"])


def test_the_costs_are_labelled_by_precision_from_the_top() -> None:
    axes = plot_costs(report_of()).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "float32",
        "bfloat16",
        "float16 O2",
    ]
    assert axes.yaxis_inverted()


def gradients(half: Sequence[float], precision: str, loss_scale: float = 1.0) -> GradientPoint:
    return GradientPoint(4, comparison_of({"w": ([1, 2.0**-30], half)}, loss_scale, precision))


def test_each_precision_has_its_gradients_beside_those_of_float32() -> None:
    results = (
        FLOAT32,
        replace(BFLOAT16, gradients=(gradients([1, 2.0**-30], "bfloat16"),)),
        replace(FLOAT16, gradients=(gradients([1, 0], "float16", 8.0),)),
    )
    figure = plot_gradient_histograms(report_of(results=results))
    drawn = [[bars(axes, i) for i in (0, 1)] for axes in figure.axes[1::2]]
    assert drawn == [[{-30: 1, 0: 1}, {-30: 1, 0: 1}], [{-30: 1, 0: 1}, {0: 1}]]
    assert right_titles(figure) == ["vanished in half: 0 %", "vanished in half: 50.0 %"]


def test_the_limits_are_those_of_each_format_over_its_loss_scale() -> None:
    results = (replace(FLOAT16, gradients=(gradients([1, 0], "float16", 8.0),)),)
    figure = plot_gradient_histograms(report_of(results=results))
    assert vertical_lines(figure.axes[1]) == pytest.approx([-27, -17, math.log2(8188)])


def test_all_histograms_show_the_same_part_of_the_axis() -> None:
    results = (
        replace(BFLOAT16, gradients=(gradients([1, 2.0**-30], "bfloat16"),)),
        replace(FLOAT16, gradients=(gradients([1, 0], "float16", 8.0),)),
    )
    figure = plot_gradient_histograms(report_of(results=results))
    assert len({axes.get_xlim() for axes in figure.axes}) == 1


def test_the_last_step_is_drawn_or_the_one_that_is_asked_for() -> None:
    titles = [
        plot_gradient_histograms(report_of(), step=step).axes[1].get_title("left")
        for step in (None, 0)
    ]
    assert titles == ["bfloat16, after 4 steps", "bfloat16, before the first step"]


def test_a_step_without_gradients_is_refused() -> None:
    message = "No gradients to draw. Expected a step out of [0, 4]. Received: step=3."
    with pytest.raises(SelectionError, match=re.escape(message)):
        plot_gradient_histograms(report_of(), step=3)


def test_a_report_without_gradients_is_refused() -> None:
    message = (
        "No gradients to draw. Expected a report with gradients. Received: one without; compare "
        "with `gradient_steps`."
    )
    with pytest.raises(SelectionError, match=re.escape(message)):
        plot_gradient_histograms(small_report())


def test_a_loaded_report_gives_the_same_figures(tmp_path: Path) -> None:
    report_of().save(tmp_path / "report.json")
    loaded = ComparisonReport.load(tmp_path / "report.json")
    for plot in (plot_curves, plot_costs, plot_gradient_histograms):
        assert len(plot(loaded).axes) == len(plot(report_of()).axes)


def test_all_figures_can_be_written_with_dollars_in_names(tmp_path: Path) -> None:
    results = (FLOAT32, replace(BFLOAT16, name="$a$"), FLOAT16)
    runs = [replace(run, name="$a$") if run.name == BFLOAT16.name else run for run in RUNS]
    report = report_of(results=results, runs=tuple(runs), model_name="$net$")
    for plot in (plot_curves, plot_costs, plot_gradient_histograms):
        plot(report).savefig(tmp_path / "figure.png", dpi=40)
