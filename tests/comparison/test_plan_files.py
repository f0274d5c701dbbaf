"""Plans through files, and their files wherever pins are taken."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.comparison.plans import BODY, HEAD, SOFTMAX, clean_plan, pins_of, plan_of
from tf_amp_kit.comparison.planning.record.parts import CurvePoint, Errors
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.errors import PinError, PlanError
from tf_amp_kit.precision.pinning.pins import Pins


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


PLANS = [
    plan_of(),
    clean_plan(),
    plan_of(half=Errors(math.inf, -math.inf, math.nan, float("nan"))),
    plan_of(curve=(CurvePoint(0, math.nan, math.inf),), step_times=None),
    plan_of(pins=replace(pins_of(SOFTMAX, HEAD), remarks=("A remark.",))),
    plan_of(model_name="modèle \N{SNOWMAN}", notes=('"quoted"\n', "")),
    plan_of(units=(replace(HEAD, score=np.float64(0.1)), replace(BODY, is_pinned=np.bool_(True)))),
    plan_of(num_passes=np.int64(7), tolerance=np.float32(0.1)),
]


@pytest.mark.parametrize("plan", PLANS)
def test_a_loaded_plan_is_equal_to_the_saved_one(plan: PrecisionPlan, path: Path) -> None:
    plan.save(path)
    assert PrecisionPlan.load(path) == plan


def test_a_file_is_strict_json_with_words_for_what_is_not_finite(path: Path) -> None:
    plan_of().save(path)
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    found = content["half"]["output"], content["half"]["gradient_cosine"]
    assert found == ("Infinity", "NaN")


def test_a_file_has_its_format_its_version_and_its_units_and_pins_by_path(path: Path) -> None:
    plan_of().save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert (content["format"], content["version"]) == ("tf_amp_kit plan", 1)
    assert list(content["units"]) == ["block/softmax", "head", "block/body"]
    assert content["pins"] == {
        "block/softmax": {"layer_class": "Softmax", "reason": "non-finite"},
        "head": {"layer_class": "Dense", "reason": "error"},
    }


def test_a_saved_plan_prints_the_same_when_loaded(path: Path) -> None:
    plan_of().save(path)
    assert str(PrecisionPlan.load(path)) == str(plan_of())


BROKEN = [
    "",
    "[]",
    "null",
    "{}",
    '{"format": "tf_amp_kit plan"}',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_plan_is_refused(text: str, path: Path) -> None:
    path.write_text(text)
    expected = re.escape(
        "The file holds no precision plan. Expected JSON that `PrecisionPlan.save`"
    )
    with pytest.raises(PlanError, match=expected):
        PrecisionPlan.load(path)


CHANGES = [
    {"version": 2},
    {"format": "tf_amp_kit pins"},
    {"metric": "accuracy"},
    {"precision": "float32"},
    {"tolerance": "small"},
    {"tolerance": None},
    {"tolerance": True},
    {"tolerance": 10**400},
    {"num_batches": 1.5},
    {"num_batches": True},
    {"model_name": 3},
    {"units": []},
    {"units": {"head": None}},
    {"units": {"head": {"score": 1.0}}},
    {"pins": {"head": {"layer_class": "Dense"}}},
    {"pins": ["head"]},
    {"remarks": "one"},
    {"notes": [1]},
    {"half": None},
    {"planned": {"output": 0.1}},
    {"planned": {"output": None, "loss": None, "gradient": None, "gradient_cosine": None}},
    {"step_times": {"what": "x"}},
    {"curve": [{"num_pins": "0", "predicted": 1.0, "measured": None}]},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: next(iter(changes)))
def test_a_damaged_plan_is_refused(changes: dict[str, Any], path: Path) -> None:
    plan_of().save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}))
    with pytest.raises(PlanError, match="The file holds no precision plan"):
        PrecisionPlan.load(path)


@pytest.mark.parametrize("name", sorted(plan_of().__dataclass_fields__))
def test_a_plan_that_lacks_a_field_is_refused(name: str, path: Path) -> None:
    plan_of().save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(PlanError, match=f"no '{name}'"):
        PrecisionPlan.load(path)


def test_an_error_missing_in_the_metric_of_the_plan_is_refused(path: Path) -> None:
    plan_of(metric="loss", half=Errors(0.1)).save(path)
    with pytest.raises(PlanError, match="no error in the loss"):
        PrecisionPlan.load(path)


def test_a_file_that_is_no_text_is_refused(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanError, match="The file holds no precision plan"):
        PrecisionPlan.load(path)


def test_a_missing_file_is_missing(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PrecisionPlan.load(path)


def test_the_pins_of_a_plan_are_read_from_its_file(path: Path) -> None:
    plan_of().save(path)
    assert Pins.load(path) == plan_of().pins


def test_a_file_of_pins_of_another_version_is_refused(path: Path) -> None:
    path.write_text('{"format": "tf_amp_kit plan", "version": 2, "model_name": "", "pins": {}}')
    with pytest.raises(PinError, match="The file holds no pins"):
        Pins.load(path)


def two_layers(policy: str = "float32") -> keras.Model:
    layers = [keras.layers.Dense(2, name=name, dtype=policy) for name in ("body", "head")]
    return keras.Sequential([keras.Input((3,)), *layers], name="net")


def head_pinned() -> PrecisionPlan:
    return plan_of(units=(HEAD,), pins=pins_of(HEAD))


@pytest.fixture(params=["file", "record"])
def given(request: pytest.FixtureRequest, path: Path) -> Any:
    """A plan as it may be handed over: itself, or its file."""
    if request.param == "record":
        return head_pinned()
    head_pinned().save(path)
    return str(path)


def test_enable_amp_takes_a_plan(given: Any) -> None:
    amp.enable_amp("fp16", pins=given)
    try:
        model = keras.Sequential(
            [keras.Input((3,)), *(keras.layers.Dense(2, name=n) for n in ("body", "head"))]
        )
        assert amp.pin_float32(model).paths == ("head",)
    finally:
        amp.disable_amp()


def test_amp_scope_takes_a_plan(given: Any) -> None:
    with amp.amp_scope("fp16", pins=given) as state:
        assert state.pins == pins_of(HEAD)


def test_load_model_takes_a_plan(given: Any, tmp_path: Path) -> None:
    two_layers("mixed_float16").save(tmp_path / "model.keras")
    model = amp.load_model(tmp_path / "model.keras", pins=given)
    assert [layer.compute_dtype for layer in model.layers] == ["float16", "float32"]


def test_what_is_called_pins_and_holds_none_is_refused() -> None:
    class Other:
        pins = ("head",)

    with pytest.raises(PinError, match=re.escape("Unknown pins. Expected what `pin_float32`")):
        Pins.parse(Other())
