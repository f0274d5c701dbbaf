"""Plans put into effect, and models that they do not fit."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.comparison.plans import HEAD, clean_plan, pins_of, plan_of
from tf_amp_kit.comparison.planning.record.parts import UnitEffect
from tf_amp_kit.comparison.planning.record.plan import PrecisionPlan
from tf_amp_kit.errors import ModelError, PinError, PinWarning, PlanError


def unit(path: str, layer_class: str = "Dense") -> UnitEffect:
    return UnitEffect(path, layer_class, 0.25, 12.5, "error", True)


def plan_with(*units: UnitEffect) -> PrecisionPlan:
    return plan_of(units=units, pins=pins_of(*units))


def net(policy: str = "mixed_float16") -> keras.Model:
    layers = [keras.layers.Dense(2, name=name, dtype=policy) for name in ("body", "head")]
    return keras.Sequential([keras.Input((3,)), *layers], name="net")


def dtypes(model: keras.Model) -> list[str]:
    return [layer.compute_dtype for layer in model.layers]


def test_a_plan_pins_its_layers() -> None:
    model = net()
    amp.apply_plan(model, plan_with(HEAD))
    assert dtypes(model) == ["float16", "float32"]


def test_the_pins_that_it_returns_can_be_undone() -> None:
    model = net()
    amp.apply_plan(model, plan_with(HEAD)).undo()
    assert dtypes(model) == ["float16", "float16"]


def test_a_plan_keeps_its_reasons_in_the_pins() -> None:
    assert [pin.reason for pin in amp.apply_plan(net(), plan_with(HEAD)).pins] == ["error"]


@pytest.mark.parametrize("convert", [str, Path])
def test_a_saved_plan_gives_the_same_numbers_in_a_fresh_copy(convert: type, tmp_path: Path) -> None:
    model, path = net(), tmp_path / "plan.json"
    copy = net()
    copy.set_weights(model.get_weights())
    plan_with(HEAD).save(path)
    amp.apply_plan(model, plan_with(HEAD))
    amp.apply_plan(copy, convert(path))
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    assert np.array_equal(model(x), copy(x))


def test_missing_paths_are_named_with_near_misses() -> None:
    plan = plan_with(unit("heads"), unit("zzz"))
    expected = (
        "The plan is of another model. Expected layers 'heads', 'zzz', which the plan of 'net' "
        "pins. Received: 'net'. Near misses: 'head'."
    )
    model = net()
    with pytest.raises(PinError, match=f"^{re.escape(expected)}$"):
        amp.apply_plan(model, plan)
    assert dtypes(model) == ["float16", "float16"]


def test_paths_like_no_other_come_with_those_that_there_are() -> None:
    with pytest.raises(PinError, match=re.escape("Received: 'net'. It has 'body', 'head'.")):
        amp.apply_plan(net(), plan_with(unit("zzz")))


def test_a_layer_of_another_class_is_refused() -> None:
    model = net()
    with pytest.raises(PinError, match=re.escape("Expected layers 'head' (Softmax)")):
        amp.apply_plan(model, plan_with(unit("head", "Softmax")))
    assert dtypes(model) == ["float16", "float16"]


def test_a_float32_model_is_refused_with_a_way_out() -> None:
    expected = (
        "Pins would do nothing. Expected a model that computes in float16. Received: 'net', in "
        'which no layer does. Build it under `amp_scope("float16")`, or make a twin: '
        '`convert_model(model, "float16")`.'
    )
    with pytest.raises(PinError, match=f"^{re.escape(expected)}$"):
        amp.apply_plan(net("float32"), plan_with(HEAD))


def test_the_policy_of_a_graph_model_itself_does_not_count() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    with pytest.raises(PinError, match="Pins would do nothing"):
        amp.apply_plan(net("float32"), plan_with(HEAD))


def test_a_model_in_the_other_format_is_pinned_with_a_warning() -> None:
    model = net("mixed_bfloat16")
    with pytest.warns(PinWarning, match="The plan is for float16, and 'net' computes in bfloat16"):
        amp.apply_plan(model, plan_with(HEAD))
    assert dtypes(model) == ["bfloat16", "float32"]


def test_the_warning_names_the_line_of_the_user() -> None:
    with pytest.warns(PinWarning) as caught:
        amp.apply_plan(net("mixed_bfloat16"), plan_with(HEAD))
    assert caught[0].filename == __file__


def test_a_plan_that_pins_every_layer_can_be_applied_twice() -> None:
    model, plan = net(), plan_with(unit("body"), HEAD)
    amp.apply_plan(model, plan)
    assert amp.apply_plan(model, plan).paths == ("body", "head")


def test_a_plan_without_pins_changes_nothing() -> None:
    model = net()
    model.compile("sgd", "mse")
    model.predict(np.ones((1, 3)), verbose=0)
    before = model.predict_function
    pins = amp.apply_plan(model, clean_plan())
    assert (pins.pins, pins.remarks) == ((), ("The plan pins nothing.",))
    assert model.predict_function is before and dtypes(model) == ["float16", "float16"]


def test_a_plan_without_pins_says_of_a_float32_model_that_it_is_one() -> None:
    pins = amp.apply_plan(net("float32"), clean_plan())
    assert pins.remarks[1].startswith("No layer of 'net' computes in float16. Build it under")


def test_no_pins_can_be_undone() -> None:
    model = net()
    amp.apply_plan(model, clean_plan()).undo()
    assert dtypes(model) == ["float16", "float16"]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="A layer is not a model"):
        amp.apply_plan(keras.layers.Dense(1), plan_with(HEAD))


@pytest.mark.parametrize("plan", [None, 3, pins_of(HEAD)])
def test_what_is_no_plan_is_refused(plan: object) -> None:
    with pytest.raises(PlanError, match=r"Not a precision plan\. Expected what `plan_"):
        amp.apply_plan(net(), plan)


def test_the_file_of_pins_is_no_plan(tmp_path: Path) -> None:
    pins_of(HEAD).save(tmp_path / "pins.json")
    with pytest.raises(PlanError, match="format 'tf_amp_kit pins', version 1"):
        amp.apply_plan(net(), tmp_path / "pins.json")
