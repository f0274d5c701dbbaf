"""The figure of a precision plan, read back from what is drawn."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex

from tests.comparison.plans import BODY, HEAD, SOFTMAX, clean_plan, pins_of, plan_of
from tf_amp_kit.comparison.planning.record.parts import CurvePoint, Errors
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.reporting.plots import plot_plan

BLUE, ORANGE = "#0072b2", "#e69f00"


def axes_of(plan: PrecisionPlan) -> tuple[Any, Any]:
    curve, scores = plot_plan(plan).axes
    return curve, scores


def drawn(axes: Any, marker: str) -> list[list[float]]:
    """The points of a marker; of the line without markers with "None"."""
    return [
        point
        for line in axes.lines
        if line.get_marker() == marker and line.get_linestyle() in ("None", "-")
        for point in line.get_xydata().tolist()
    ]


def bar_ends(axes: Any) -> list[float]:
    return [bar.get_x() + bar.get_width() for bar in axes.patches]


def legend(plan: PrecisionPlan) -> list[str]:
    return [text.get_text() for text in plot_plan(plan).legends[0].get_texts()]


def many(count: int, num_pinned: int = 1) -> PrecisionPlan:
    units = tuple(
        replace(HEAD, path=f"layer_{i}", score=1 / (i + 1), is_pinned=i < num_pinned)
        for i in range(count)
    )
    return plan_of(units=units, pins=pins_of(*units[:num_pinned]))


def test_the_measured_errors_are_dots() -> None:
    curve, _ = axes_of(plan_of())
    assert drawn(curve, "o") == [[1, 0.3], [2, 0.0012]]


def test_the_predicted_errors_are_a_line_through_what_is_finite() -> None:
    plan = plan_of(curve=(CurvePoint(0, math.inf), CurvePoint(1, 0.25), CurvePoint(2, 0.001)))
    curve, _ = axes_of(plan)
    lines = [line.get_xydata().tolist() for line in curve.lines if line.get_zorder() == 2]
    assert lines == [[[1, 0.25], [2, 0.001]]]


def test_what_is_not_finite_is_a_cross_at_the_upper_edge() -> None:
    curve, _ = axes_of(plan_of())
    assert drawn(curve, "X") == [[0, curve.get_ylim()[1]]]


def test_what_is_undefined_is_at_the_upper_edge_too() -> None:
    curve, _ = axes_of(plan_of(curve=(CurvePoint(0, math.nan), CurvePoint(2, 0.1))))
    assert drawn(curve, "X") == [[0, curve.get_ylim()[1]]]


def test_an_error_of_zero_is_at_the_lower_edge() -> None:
    plan = plan_of(curve=(CurvePoint(0, 0.5, 0.5), CurvePoint(3, 0.25, 0.0)))
    curve, _ = axes_of(plan)
    assert drawn(curve, "o")[-1] == [3, curve.get_ylim()[0]]


def test_the_plan_and_its_held_out_error_stand_at_the_number_of_pins() -> None:
    curve, _ = axes_of(plan_of())
    assert (drawn(curve, "*"), drawn(curve, "D")) == ([[2, 0.0012]], [[2, 0.0013]])


def test_the_tolerance_is_a_line_across_both_plots() -> None:
    curve, scores = axes_of(plan_of(tolerance=0.0025))
    level = [line.get_ydata() for line in curve.lines if list(line.get_xdata()) == [0, 1]]
    upright = [line.get_xdata() for line in scores.lines]
    assert (level, upright) == ([[0.0025, 0.0025]], [[0.0025, 0.0025]])


def test_the_error_is_on_a_logarithmic_axis_in_both_plots() -> None:
    curve, scores = axes_of(plan_of())
    assert (curve.get_yscale(), scores.get_xscale()) == ("log", "log")


def test_the_bars_end_at_the_scores_and_at_the_edge_for_what_is_not_finite() -> None:
    _, scores = axes_of(plan_of())
    assert bar_ends(scores) == pytest.approx([scores.get_xlim()[1], 0.25, 0.0005])


def test_a_score_of_zero_has_no_bar() -> None:
    _, scores = axes_of(plan_of(units=(HEAD, replace(BODY, score=0.0))))
    assert scores.patches[1].get_width() == 0


def test_pinned_layers_have_another_colour() -> None:
    _, scores = axes_of(plan_of())
    assert [to_hex(bar.get_facecolor()) for bar in scores.patches] == [BLUE, BLUE, ORANGE]


def test_the_bars_are_labelled_from_the_top_in_the_order_of_the_ranking() -> None:
    _, scores = axes_of(plan_of())
    labels = [label.get_text() for label in scores.get_yticklabels()]
    assert labels == ["block/softmax", "head", "block/body"]
    assert scores.yaxis_inverted()


def test_thirty_layers_at_most_have_bars_and_labels_and_the_others_are_counted() -> None:
    _, scores = axes_of(many(31))
    found = len(scores.patches), len(scores.get_yticklabels()), scores.get_title("right")
    assert found == (30, 30, "the first 30 of 31 layers")


def test_thirty_layers_are_all_shown() -> None:
    _, scores = axes_of(many(30))
    assert (len(scores.patches), scores.get_title("right")) == (30, "")


def test_layers_that_do_not_stand_in_the_order_of_scores_say_why() -> None:
    units = (SOFTMAX, replace(HEAD, reason="range", largest=20000.0), BODY)
    _, scores = axes_of(plan_of(units=units))
    assert [text.get_text() for text in scores.texts] == ["not finite", " range: up to 2e+04"]


def test_long_paths_lose_their_front() -> None:
    path = "/".join(["encoder"] * 20) + "/kernel"
    _, scores = axes_of(plan_of(units=(replace(HEAD, path=path),)))
    label = scores.get_yticklabels()[0].get_text()
    assert label.startswith("…") and label.endswith("encoder/kernel") and len(label) == 44


def test_dollars_in_a_path_are_no_formula() -> None:
    _, scores = axes_of(plan_of(units=(replace(HEAD, path="a$b$"),)))
    assert scores.get_yticklabels()[0].get_text() == r"a\$b\$"


def test_a_clean_plan_says_that_nothing_was_ranked() -> None:
    curve, scores = axes_of(clean_plan())
    assert drawn(curve, "*") == [[0, 0.0004]]
    assert [text.get_text() for text in scores.texts] == ["no layer had to be ranked"]


@pytest.mark.parametrize("plan", [clean_plan(), plan_of(), many(150, 20)])
def test_only_whole_numbers_of_pins_have_ticks(plan: PrecisionPlan) -> None:
    curve, _ = axes_of(plan)
    assert all(tick == int(tick) for tick in curve.get_xticks())


def test_the_legend_has_what_is_drawn() -> None:
    assert legend(plan_of()) == [
        "tolerance 0.002",
        "predicted",
        "measured",
        "the plan",
        "the plan, held out",
        "not finite (at the edge)",
        "pinned to float32",
        "stays in float16",
    ]


def test_the_legend_of_a_clean_plan_has_no_more_than_that() -> None:
    assert legend(clean_plan()) == ["tolerance 0.002", "the plan"]


@pytest.mark.parametrize(
    ("plan", "title"),
    [
        (plan_of(), "Precision plan of 'net' in float16: 2 pins, tolerance 0.002 met"),
        (clean_plan(), "Precision plan of 'net' in float16: no pins, tolerance 0.002 met"),
        (many(3), "Precision plan of 'net' in float16: 1 pin, tolerance 0.002 met"),
        (
            plan_of(planned=Errors(0.5)),
            "Precision plan of 'net' in float16: 2 pins, tolerance 0.002 not met",
        ),
    ],
)
def test_the_title_has_the_verdict(plan: PrecisionPlan, title: str) -> None:
    assert plot_plan(plan).get_suptitle() == title


NOTHING_FINITE = plan_of(
    planned=Errors(math.inf),
    planned_held_out=Errors(math.nan),
    units=(SOFTMAX,),
    pins=pins_of(SOFTMAX),
    curve=(CurvePoint(0, math.inf, math.inf), CurvePoint(1, math.inf, math.inf)),
)


@pytest.mark.parametrize(
    "plan",
    [plan_of(), clean_plan(), many(150, 20), NOTHING_FINITE, plan_of(tolerance=0.0, curve=())],
)
def test_a_figure_can_be_written_without_a_warning(plan: PrecisionPlan, tmp_path: Path) -> None:
    plot_plan(plan).savefig(tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 0
