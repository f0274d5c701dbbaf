"""How the record of measured numbers prints itself, made by hand."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

from tests.reporting.records import report_of, tensor
from tf_amp_kit.inspection.numerics.scales import ScaleAdvice

TENSORS = (
    tensor("input", "@input/0", [1.0, 65520.0]),
    tensor("output", "dense", [2.0**-25, 2.0**-24, 1.0, -4.0]),
    tensor("output", "bad", [math.nan, math.inf, 1.0]),
    tensor("gradient", "dense", [0.0, 0.0]),
    tensor("weight", "dense/kernel", [0.5, -65504.0]),
    tensor("weight_gradient", "dense/kernel", []),
    tensor("weight_gradient", "dense/bias", [2.0**-24, 1.0]),
)
ADVICE = ScaleAdvice(4096.0, 64.0, 32768.0, 0.0, 0.25)


def hand_made(**changes: Any) -> Any:
    changes = {"scale": ADVICE, "notes": ("Something was seen.",), **changes}
    return dataclasses.replace(report_of(TENSORS), **changes)


TEXT = """\
Numerics of 'model' in float16, gradients at loss scale 1, 1 batch of 4 samples in all

Tensor        Kind                  Largest  Overflow  Underflow  Subnormal  Headroom
-------------------------------------------------------------------------------------
bad           output           2 not finite       0 %        0 %        0 %    2^16.0
@input/0      input               6.552e+04    50.0 %        0 %        0 %    2^-0.0
dense         output                      4       0 %     25.0 %     25.0 %    2^14.0
dense/bias    weight gradient             1       0 %        0 %     50.0 %    2^16.0
dense/kernel  weight               6.55e+04       0 %        0 %        0 %     2^0.0
dense         gradient                    0       0 %        0 %        0 %         -
dense/kernel  weight gradient             -         -          -          -         -

1 of 7 tensors overflow, in 1 something becomes zero.
Loss scales from 64 to 32768 lose nothing; start from 4096: 0 % of the gradients' elements become
    zero there, 25.0 % without scaling.
Note: Something was seen."""


def test_the_whole_text_is_as_shown() -> None:
    assert str(hand_made()) == TEXT


def test_the_worst_come_first() -> None:
    tensors = {
        "room": [1.0],
        "less_room": [1024.0],
        "subnormal": [2.0**-24, 1.0],
        "underflow": [2.0**-25, 1.0],
        "more_underflow": [2.0**-25],
        "overflow": [65520.0, 1.0],
        "nan": [math.nan, 1.0],
    }
    report = report_of([tensor("output", path, values) for path, values in tensors.items()])
    assert [one.path for one in report.worst()] == [
        "nan",
        "overflow",
        "more_underflow",
        "underflow",
        "subnormal",
        "less_room",
        "room",
    ]


def test_a_range_that_no_scale_serves_is_told() -> None:
    advice = ScaleAdvice(32768.0, 2.0**17, 32768.0, 0.125, 0.5)
    text = " ".join(str(hand_made(scale=advice, notes=())).split())
    assert text.endswith(
        "No loss scale serves both ends: it takes 131072 for nothing to become zero, and "
        "gradients overflow above 32768. Start from 32768: 12.5 % of the gradients' elements "
        "become zero there, 50.0 % without scaling."
    )


def test_a_model_without_gradients_has_none_to_scale() -> None:
    lines = str(hand_made(scale=ScaleAdvice(1.0, None, None, 0.0, 0.0), notes=())).splitlines()
    assert lines[-1] == "There are no gradients to scale."


def test_several_batches_are_told_with_their_samples() -> None:
    title = str(hand_made(num_batches=3, num_samples=70, loss_scale=1024.0)).splitlines()[0]
    assert title == (
        "Numerics of 'model' in float16, gradients at loss scale 1024, 3 batches of 70 samples "
        "in all"
    )


def test_ten_tensors_are_shown_and_the_others_counted() -> None:
    report = report_of([tensor("output", f"layer_{i}", [1.0]) for i in range(12)])
    assert "... and 2 more tensors: report.table() shows all." in str(report).splitlines()


def test_the_table_shows_all_tensors() -> None:
    table = report_of([tensor("output", f"layer_{i}", [1.0]) for i in range(12)]).table()
    assert len(table.splitlines()) == 4 + 12


def test_long_paths_stay_within_a_hundred_columns() -> None:
    path = "/".join(["a_long_name_of_a_block"] * 12)
    report = report_of([tensor("weight_gradient", path, [-1.2345e-30, 65520.0])], model_name=path)
    assert max(map(len, str(report).splitlines())) <= 100


def test_the_model_s_own_output_has_a_name() -> None:
    assert tensor("output", "", [1.0]).name == "(model)"


def test_positions_are_told_where_there_are_several() -> None:
    one = tensor("output", "layer", [1.0])
    assert dataclasses.replace(one, position=2).name == "layer[2]"


def test_the_record_is_strict_json() -> None:
    report = hand_made()
    record = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    bad = next(one for one in record["tensors"] if one["path"] == "bad")
    assert (bad["num_nan"], bad["num_infinite"], json.loads(report.to_json())) == (1, 1, record)


def test_an_empty_tensor_is_strict_json() -> None:
    record = report_of([tensor("output", "empty", [])]).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False))["tensors"][0]["num_elements"] == 0
