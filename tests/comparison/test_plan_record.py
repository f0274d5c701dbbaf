"""How the record of a precision plan prints itself, made by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.comparison.plans import BODY, HEAD, SOFTMAX, clean_plan, pins_of, plan_of
from tf_amp_kit.comparison.planning.record.parts import BatchDifference, CurvePoint, Errors
from tf_amp_kit.precision.pinning.pins import Pin, Pins

TEXT = """\
2 of 3 layers of 'net' stay in float32, the rest in float16: output error not finite -> 0.0012,
    tolerance 0.002; held out 0.0013.

Errors in the output: a layer alone in half; the plan without its pin, predicted and measured

Layer          Class    Why              Alone   Predicted  Measured  Largest
-----------------------------------------------------------------------------
block/softmax  Softmax  non-finite  not finite  not finite         -    7e+04
head           Dense    error             0.25        0.25     0.125     12.5

Against float32             Batches      Output        Loss    Gradient     Cosine
----------------------------------------------------------------------------------
all in float16                    4  not finite  not finite  not finite  undefined
with the pins                     4      0.0012       0.003        0.01    0.99995
all in float16           1 held out        0.75         0.5        0.25        0.5
with the pins            1 held out      0.0013       0.004        0.02     0.9999
float32, batch to batch           2           -         0.3        1.65      -0.25

Milliseconds of a forward and backward pass, median and quartiles of 20 rounds: float32 12 (10 to
    14), float16 6.25 (5 to 7.5), with the pins 2000 (1500 to 2500).
Made on 4 batches of 128 samples in all and 1 held-out batch, with 3 validations and 40 passes, in
    2.2 s.
Note: Something was seen."""

CLEAN_TEXT = """\
All of 'net' may run in float16: output error 0.0004, tolerance 0.002.

Against float32  Batches  Output
--------------------------------
all in float16         1  0.0004

Made on 1 batch of 32 samples in all, with 1 validation and 2 passes, in 0.5 s."""

ALL_UNITS = """\
Layer          Class    Runs in  Why              Alone   Predicted  Measured  Largest
--------------------------------------------------------------------------------------
block/softmax  Softmax  float32  non-finite  not finite  not finite         -    7e+04
head           Dense    float32  error             0.25        0.25     0.125     12.5
block/body     Dense    float16  error           0.0005           -         -        3"""


def verdict_of(plan: object) -> str:
    return " ".join(str(plan).split("\n\n")[0].split())


def test_the_whole_text_of_a_plan_with_pins_is_as_shown() -> None:
    assert str(plan_of()) == TEXT


def test_the_whole_text_of_a_clean_plan_is_as_shown() -> None:
    assert str(clean_plan()) == CLEAN_TEXT


def test_the_verdict_counts_one_layer_as_one() -> None:
    plan = plan_of(pins=pins_of(HEAD), units=(HEAD, BODY), planned_held_out=None)
    assert verdict_of(plan) == (
        "1 of 2 layers of 'net' stays in float32, the rest in float16: output error not finite -> "
        "0.0012, tolerance 0.002."
    )


def test_a_tolerance_that_pins_do_not_meet_is_told_first() -> None:
    plan = plan_of(planned=Errors(0.0031), planned_held_out=None, half=Errors(0.81))
    assert verdict_of(plan) == (
        "The tolerance is not met. 2 of 3 layers of 'net' stay in float32, the rest in float16: "
        "output error 0.81 -> 0.0031, tolerance 0.002."
    )


def test_a_tolerance_that_nothing_was_pinned_for_is_told_first() -> None:
    errors = Errors(0.0031)
    assert verdict_of(clean_plan(half=errors, planned=errors)) == (
        "The tolerance is not met. All of 'net' runs in float16: output error 0.0031, "
        "tolerance 0.002."
    )


def test_a_tolerance_that_only_held_out_batches_exceed_is_told_as_such() -> None:
    plan = plan_of(planned_held_out=Errors(0.0025), half=Errors(0.81))
    assert verdict_of(plan).startswith("The tolerance is not met on the held-out batches. 2 of 3")


def test_an_error_that_rounds_to_the_tolerance_is_told_apart_from_it() -> None:
    plan = clean_plan(half=Errors(0.0020004), planned=Errors(0.0020004))
    assert verdict_of(plan).endswith("output error 0.0020004, tolerance 0.002.")


def test_a_held_out_error_that_rounds_to_the_tolerance_is_told_apart_from_it() -> None:
    plan = plan_of(planned_held_out=Errors(0.0020004))
    assert verdict_of(plan).endswith("tolerance 0.002; held out 0.0020004.")


@pytest.mark.parametrize(("metric", "error"), [("loss", "0.003"), ("gradient", "0.01")])
def test_the_verdict_is_in_the_metric_of_the_plan(metric: str, error: str) -> None:
    plan = plan_of(metric=metric, tolerance=0.5)
    assert f"{metric} error not finite -> {error}, tolerance 0.5" in verdict_of(plan)


@pytest.mark.parametrize(
    ("searched", "held_out", "is_met"),
    [
        (0.002, 0.002, True),
        (0.0021, 0.001, False),
        (0.001, 0.0021, False),
        (math.nan, 0.001, False),
        (math.inf, 0.001, False),
    ],
)
def test_the_tolerance_is_met_only_if_every_error_is_within_it(
    searched: float, held_out: float, is_met: bool
) -> None:
    plan = plan_of(planned=Errors(searched), planned_held_out=Errors(held_out))
    assert plan.meets_tolerance is is_met


def test_all_units_are_shown_when_asked_for() -> None:
    assert plan_of().table(all_units=True).split("\n\n")[1] == ALL_UNITS


def test_rows_beyond_the_limit_are_counted() -> None:
    lines = plan_of().text(max_rows=1).splitlines()
    assert "... and 1 more pinned layers: plan.table() shows all." in lines


def test_the_text_shows_all_units_when_asked_for() -> None:
    plan = plan_of()
    assert plan.text(all_units=True) == plan.text().replace(
        plan.table(), plan.table(all_units=True)
    )


def test_rows_of_all_units_beyond_the_limit_are_counted() -> None:
    lines = plan_of().text(max_rows=1, all_units=True).splitlines()
    assert "... and 2 more layers: plan.table(all_units=True) shows all." in lines


def test_the_text_without_a_limit_shows_every_pinned_layer() -> None:
    units = [replace(HEAD, path=f"layer_{i}") for i in range(25)]
    plan = plan_of(units=tuple(units), pins=pins_of(*units))
    shown = [
        sum(line.startswith("layer_") for line in text.splitlines())
        for text in (str(plan), plan.text())
    ]
    assert shown == [20, 25]


def test_the_model_itself_is_named_in_words() -> None:
    whole = replace(HEAD, path="")
    assert "\n(model)  Dense" in plan_of(units=(whole,), pins=pins_of(whole)).table()


def test_a_plan_is_strict_json_with_none_for_what_is_not_finite() -> None:
    content = json.loads(plan_of().to_json(), parse_constant=pytest.fail)
    found = content["half"], content["units"][0]["score"], content["curve"][0]["predicted"]
    nothing = dict.fromkeys(("output", "loss", "gradient", "gradient_cosine"))
    assert found == (nothing, None, None)


def test_the_dictionary_has_every_field_and_the_verdict() -> None:
    fields = set(plan_of().__dataclass_fields__)
    assert set(plan_of().to_dict()) == fields | {"meets_tolerance"}


def test_a_plan_keeps_no_model_and_no_word_of_its_files() -> None:
    pins = Pins("net", (Pin("head", "Dense", "error", in_files="plain Keras"),))
    assert plan_of(pins=pins).pins == pins_of(HEAD)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Errors(1.0, 1.0, 1.0, math.nan), Errors(1.0, 1.0, 1.0, float("nan"))),
        (BatchDifference(1.0, 1.0, math.nan), BatchDifference(1.0, 1.0, float("nan"))),
        (CurvePoint(1, math.nan), CurvePoint(1, float("nan"))),
        (replace(SOFTMAX, score=math.nan), replace(SOFTMAX, score=float("nan"))),
    ],
)
def test_records_with_nan_in_the_same_place_are_equal(one: object, other: object) -> None:
    assert one == other and hash(one) == hash(other)


def test_records_that_differ_in_a_number_are_not_equal() -> None:
    assert Errors(1.0, 0.0, 0.0, math.nan) != Errors(1.0, 0.0, 0.5, math.nan)


def test_a_diff_tells_pins_settings_errors_and_scores() -> None:
    units = (replace(HEAD, score=0.1), replace(SOFTMAX, is_pinned=False), BODY)
    other = plan_of(
        precision="bfloat16", units=units, pins=pins_of(HEAD), planned=Errors(0.0011, 0.003, 0.01)
    )
    assert str(plan_of().diff(other)) == (
        "Pinned only by the first plan: 'block/softmax'.\n"
        "Pinned by both: 'head'.\n"
        "\n"
        "What                     First plan  Second plan\n"
        "------------------------------------------------\n"
        "precision                   float16     bfloat16\n"
        "planned.output               0.0012       0.0011\n"
        "planned.gradient_cosine     0.99995            -\n"
        "\n"
        "Score  First plan  Second plan\n"
        "------------------------------\n"
        "head         0.25          0.1"
    )


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        (0.1, 0.2, False),
        (0.1, 0.21, True),
        (0.21, 0.1, True),
        (0.0, 0.0, False),
        (0.0, 1e-9, True),
        (math.inf, math.inf, False),
        (math.inf, 1.0, True),
        (math.nan, math.nan, False),
        (math.nan, 1.0, True),
    ],
)
def test_scores_are_told_from_more_than_a_factor_of_two(
    first: float, second: float, is_told: bool
) -> None:
    plans = [plan_of(units=(replace(HEAD, score=score),)) for score in (first, second)]
    assert [one.name for one in plans[0].diff(plans[1]).scores] == ["head"] * is_told


def test_scores_in_different_metrics_are_not_compared() -> None:
    other = plan_of(metric="loss", units=(replace(HEAD, score=1e3),))
    diff = plan_of().diff(other)
    assert diff.scores == () and "not compared" in str(diff)


def test_a_plan_does_not_differ_from_an_equal_one() -> None:
    diff = plan_of().diff(plan_of())
    assert not diff and str(diff).splitlines() == [
        "Pinned by both: 'block/softmax', 'head'.",
        "Nothing differs.",
    ]


def test_plans_without_pins_are_told_as_such() -> None:
    assert str(clean_plan().diff(clean_plan())).splitlines()[0] == "Neither plan pins anything."


def test_errors_that_only_one_plan_has_are_told_as_missing() -> None:
    other = plan_of(half_held_out=None)
    found = {one.name: (one.first, one.second) for one in plan_of().diff(other).changes}
    assert found["half_held_out.output"] == (0.75, None)


def test_a_diff_is_strict_json() -> None:
    content = json.loads(plan_of().diff(clean_plan()).to_json(), parse_constant=pytest.fail)
    assert content["changes"][0] == {"name": "half.output", "first": None, "second": 0.0004}
