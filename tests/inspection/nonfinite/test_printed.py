"""The printed report, as a whole, of records made by hand; and the same as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tf_amp_kit.inspection.nonfinite.operand import Operand
from tf_amp_kit.inspection.nonfinite.report import NonFiniteOrigin, NonFiniteReport
from tf_amp_kit.tracing.source import Source

EXP = NonFiniteOrigin(
    path="body/growth",
    layer_class="Growth",
    operation="Exp",
    direction="forward",
    reason="Exp of 12.5 overflows float16 above 11.09.",
    source=Source("/home/me/model.py", 12, "return ops.exp(inputs)"),
    operands=(Operand.of(np.array([[0.5, 12.5]], "float16")),),
    result=Operand.of(np.array([[1.649, np.inf]], "float16")),
)
FORWARD = NonFiniteReport(
    origin=EXP,
    num_batches=3,
    precision="float16",
    loss_scale=32768.0,
    spread=("body", "head"),
    reached=("@output/0", "@loss", "@gradients/head/kernel", "@gradients/head/bias"),
    in_float32=False,
    notes=("NaN or Inf is in 1 variables: 'idle'.",),
    saved_to="bad.npz",
)
FORWARD_TEXT = """\
The first Inf: Exp in body/growth (Growth), forward pass, of batch 3 (float16, loss scale 32768):
  /home/me/model.py:12
      return ops.exp(inputs)
  Why:       Exp of 12.5 overflows float16 above 11.09.
  Input:     float16 (1, 2): 0.5 to 12.5
  Result:    float16 (1, 2): 1.649 to 1.649, 1 infinite
  Spread to: 'body', 'head'; @output/0, @loss, 2 weight gradients
  Float32:   finite there: a matter of precision
  Saved:     the batch, as bad.npz
Note: NaN or Inf is in 1 variables: 'idle'."""

BACKWARD = NonFiniteReport(
    origin=NonFiniteOrigin(
        path="head",
        layer_class="Dense",
        operation="MatMul",
        direction="backward",
        reason="Sums of 1 product reach 2.097e+06: float16 overflows from 65520 on.",
        source=None,
        operands=(
            Operand.of(np.array([[64.0]], "float16")),
            Operand.of(np.array([[32768.0]], "float16")),
        ),
        result=Operand.of(np.array([[np.inf]], "float16")),
    ),
    num_batches=1,
    precision="float16",
    loss_scale=32768.0,
    reached=("@gradients/head/kernel",),
    in_float32=False,
    clean_scale=512.0,
)
BACKWARD_TEXT = """\
The first Inf: MatMul in head (Dense), backward pass, of batch 1 (float16, loss scale 32768):
  Why:       Sums of 1 product reach 2.097e+06: float16 overflows from 65520 on.
  Input:     float16 (1, 1): 64 to 64
  Input:     float16 (1, 1): 32768 to 32768
  Result:    float16 (1, 1): no finite numbers, 1 infinite
  Spread to: 1 weight gradients
  Scale:     clean at 512: dynamic loss scaling gets there by itself, by skipping steps, and no harm
    is done"""

DATA = NonFiniteReport(
    origin=NonFiniteOrigin(
        path="@input/age",
        layer_class="",
        operation="",
        direction="forward",
        reason="The data hold 1 NaN of 2 elements before the step begins.",
        source=None,
        operands=(),
        result=Operand.of(np.array([np.nan, 2.0], "float32")),
    ),
    num_batches=2,
    precision="bfloat16",
    loss_scale=1.0,
    spread=("",),
    reached=("@loss",),
)
DATA_TEXT = """\
NaN is in @input/age already, of batch 2 (bfloat16, loss scale 1):
  Why:       The data hold 1 NaN of 2 elements before the step begins.
  Result:    float32 (2,): 2 to 2, 1 NaN
  Spread to: '(model)'; @loss"""

CLEAN = NonFiniteReport(None, 1, "bfloat16", 1.0)
ALL = pytest.mark.parametrize("report", [FORWARD, BACKWARD, DATA, CLEAN])


@pytest.mark.parametrize(
    ("report", "text"),
    [(FORWARD, FORWARD_TEXT), (BACKWARD, BACKWARD_TEXT), (DATA, DATA_TEXT)],
    ids=["forward", "backward", "data"],
)
def test_a_report_prints_as_a_whole(report, text):
    assert str(report) == text


def test_a_clean_report_is_one_line():
    assert str(CLEAN) == "No NaN and no Inf in 1 batch (bfloat16, loss scale 1)."


def test_a_clean_report_prints_its_notes():
    assert str(replace(CLEAN, num_batches=7, notes=("One.", "Two."))) == (
        "No NaN and no Inf in 7 batches (bfloat16, loss scale 1).\nNote: One.\nNote: Two."
    )


@pytest.mark.parametrize(("iterations", "text"), [((2,), ", iteration 3"), ((), "")])
def test_iterations_are_counted_from_one_for_people(iterations, text):
    report = replace(FORWARD, origin=replace(EXP, iterations=iterations))
    assert f"forward pass{text}, of batch 3" in str(report).replace("\n    ", " ")


def test_what_cannot_run_in_float32_is_said_to_be_unknown():
    text = str(replace(FORWARD, in_float32=None))
    assert "  Float32:   not known: the model cannot run in float32" in text


def test_a_nan_is_called_one():
    result = Operand.of(np.array([np.nan, np.inf], "float16"))
    report = replace(FORWARD, origin=replace(EXP, result=result))
    assert str(report).startswith("The first NaN: Exp in")


def test_the_model_itself_is_called_so_where_it_has_no_path():
    report = replace(FORWARD, origin=replace(EXP, path="", layer_class="Net"))
    assert str(report).startswith("The first Inf: Exp in (model) (Net), forward pass")


def test_many_layers_that_it_spread_to_are_counted():
    report = replace(BACKWARD, spread=tuple("abcdef"))
    assert "Spread to: 'a', 'b', 'c', 'd' and 2 more; 1 weight gradients" in str(report)


def long_report():
    path = "/".join(["encoder_layer"] * 4)
    operand = Operand.of(np.ones((2, 3, 4, 5, 6), "float16"))
    origin = replace(EXP, path=path, reason="word " * 60, operands=(operand,) * 3)
    names = tuple(f"{path}/{number}" for number in range(9))
    return replace(FORWARD, origin=origin, spread=names, reached=names, notes=("note " * 60,))


@pytest.mark.parametrize("report", [FORWARD, BACKWARD, DATA, CLEAN, long_report()])
def test_no_line_is_wider_than_a_hundred_columns(report):
    assert max(map(len, str(report).splitlines())) <= 100


def test_a_path_is_never_broken():
    path = "/very/long" * 20 + "/model.py"
    report = replace(FORWARD, origin=replace(EXP, source=Source(path, 1, "x")))
    assert f"{path}:1" in str(report)


@ALL
def test_a_report_is_strict_json(report):
    assert json.loads(json.dumps(report.to_dict(), allow_nan=False)) == report.to_dict()


@ALL
def test_json_text_holds_the_same(report):
    assert json.loads(report.to_json()) == report.to_dict()


def test_all_that_a_report_knows_is_in_its_dictionary():
    assert FORWARD.to_dict() == {
        "origin": EXP.to_dict(),
        "num_batches": 3,
        "precision": "float16",
        "loss_scale": 32768.0,
        "spread": ["body", "head"],
        "reached": ["@output/0", "@loss", "@gradients/head/kernel", "@gradients/head/bias"],
        "in_float32": False,
        "clean_scale": None,
        "notes": ["NaN or Inf is in 1 variables: 'idle'."],
        "saved_to": "bad.npz",
    }


def test_all_that_an_origin_knows_is_in_its_dictionary():
    assert replace(EXP, iterations=(1, 0)).to_dict() == {
        "path": "body/growth",
        "layer_class": "Growth",
        "operation": "Exp",
        "direction": "forward",
        "reason": "Exp of 12.5 overflows float16 above 11.09.",
        "source": {"file": "/home/me/model.py", "line": 12, "text": "return ops.exp(inputs)"},
        "operands": [EXP.operands[0].to_dict()],
        "result": EXP.result.to_dict(),
        "iterations": [1, 0],
    }


def test_what_is_no_number_is_none_in_json():
    assert BACKWARD.to_dict()["origin"]["result"]["minimum"] is None
    assert math.isnan(BACKWARD.origin.result.minimum)


@pytest.mark.parametrize(("clean_scale", "expected"), [(512.0, True), (None, False)])
def test_a_clean_scale_makes_it_only_the_loss_scale(clean_scale, expected):
    assert replace(BACKWARD, clean_scale=clean_scale).is_only_loss_scale is expected
