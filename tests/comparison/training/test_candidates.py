"""What users may write as a precision to compare."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.comparison.plans import HEAD, clean_plan, pins_of, plan_of
from tf_amp_kit import hardware
from tf_amp_kit.comparison.training.candidates import Candidate, parse_candidates
from tf_amp_kit.errors import PlanError, PrecisionError
from tf_amp_kit.precision.state import AmpState

FLOAT32 = Candidate("float32", AmpState("float32", "O0"))


def named(*precisions: Any) -> list[str]:
    return [one.name for one in parse_candidates(list(precisions))]


def half(*precisions: Any) -> Candidate:
    """The only candidate beside float32."""
    _, one = parse_candidates(list(precisions))
    return one


def auto_is(monkeypatch: pytest.MonkeyPatch, half: str) -> None:
    """Makes this machine one that suits a precision."""
    fast, slow = hardware.Verdict(True, "native"), hardware.Verdict(False, "emulated")
    verdicts = {name: fast if name == half else slow for name in ("float16", "bfloat16")}
    device = hardware.Device("CPU:0", "cpu", None, **verdicts)
    monkeypatch.setattr(hardware.Hardware, "default_device", property(lambda _: device))


@pytest.mark.parametrize("precisions", [["bf16"], ["fp32", "bf16"], ["bf16", "float32"]])
def test_float32_is_always_there_and_first(precisions: list[str]) -> None:
    assert named(*precisions) == ["float32", "bfloat16"]


def test_float32_may_be_alone() -> None:
    assert parse_candidates(["fp32"]) == (FLOAT32,)


def test_the_reference_is_no_control() -> None:
    (one,) = parse_candidates(("fp32",))
    assert (one.is_reference, one.is_float32, one.is_control) == (True, True, False)


def test_float32_named_again_is_a_control() -> None:
    _, again = parse_candidates(["fp32", "fp32"])
    assert (again.name, again.is_control, again.is_float32, again.is_reference) == (
        "float32 again", True, True, False,
    )  # fmt: skip


def test_every_further_float32_is_a_control_of_its_own() -> None:
    assert named("fp32", "bf16", "float32", "O0") == [
        "float32", "float32 again", "float32 again 2", "bfloat16",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "name", "state"),
    [
        ("bf16", "bfloat16", AmpState("bfloat16", "O1")),
        ("half", "float16", AmpState("float16", "O1")),
        ("mixed_float16", "float16", AmpState("float16", "O1")),
        ("fp16:O1", "float16", AmpState("float16", "O1")),
        ("fp16:O2", "float16 O2", AmpState("float16", "O2")),
        ("bf16:o3", "bfloat16 O3", AmpState("bfloat16", "O3")),
        (AmpState("float16", "O2"), "float16 O2", AmpState("float16", "O2")),
        (AmpState("float16", "O1"), "float16", AmpState("float16", "O1")),
    ],
)
def test_names_levels_and_states_are_understood(written: Any, name: str, state: AmpState) -> None:
    assert half(written) == Candidate(name, state)


@pytest.mark.parametrize("machine", ["float16", "bfloat16"])
@pytest.mark.parametrize("written", ["O2", "o2", "auto:O2"])
def test_a_level_alone_takes_the_half_precision_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, written: str
) -> None:
    auto_is(monkeypatch, machine)
    assert half(written).state == AmpState(machine, "O2")


def test_where_no_half_precision_suits_the_machine_auto_adds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    auto_is(monkeypatch, "none")
    assert named("auto", "bf16") == ["float32", "bfloat16"]


def test_a_state_with_pins_says_so() -> None:
    pins = pins_of(HEAD)
    one = half(AmpState("float16", "O1", pins=pins))
    assert (one.name, one.state.pins) == ("float16 pins", pins)


def test_a_plan_brings_its_precision_and_its_pins() -> None:
    plan = plan_of()
    assert half(plan) == Candidate("float16 plan", AmpState("float16", "O1", pins=plan.pins))


@pytest.mark.parametrize("form", [str, lambda path: path])
def test_a_file_of_a_plan_is_named_by_its_file(tmp_path: Any, form: Any) -> None:
    path = tmp_path / "careful.json"
    plan_of(precision="bfloat16").save(path)
    one = half(form(path))
    assert (one.name, one.state.pins.paths) == ("bfloat16 careful", ("block/softmax", "head"))


def test_plans_of_the_same_name_are_numbered() -> None:
    plans = [plan_of(), plan_of(pins=pins_of(HEAD))]
    assert named(*plans) == ["float32", "float16 plan", "float16 plan 2"]


def test_a_plan_without_pins_is_not_plain_half() -> None:
    assert named("fp16", clean_plan()) == ["float32", "float16", "float16 plan"]


@pytest.mark.parametrize("again", ["half", "float16", "fp16:O1", AmpState("float16", "O1")])
def test_the_same_half_precision_twice_is_refused(again: Any) -> None:
    message = "A precision is named twice. Received: 'float16', which is there already."
    with pytest.raises(PrecisionError, match=re.escape(message)):
        parse_candidates(["fp16", "bf16", again])


@pytest.mark.parametrize("precisions", ["fp16", [], (), None, 3, {"fp16"}])
def test_what_is_no_list_of_precisions_is_refused(precisions: Any) -> None:
    message = f"Received: precisions={precisions!r}."
    with pytest.raises(PrecisionError, match=re.escape(message)):
        parse_candidates(precisions)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("bf17", "Unknown precision."),
        (16, "Unknown precision. Expected names such as 'fp32', 'bf16' or 'fp16'"),
        (None, "Received: None."),
        ("fp16:O4", "Unknown level."),
        ("fp32:O2", "Level 'O2' is about half precision."),
        ("fp16:O0", "Level 'O0' is float32 everywhere."),
        ("O2:O1", "Unknown precision."),
        ("", "Unknown precision."),
    ],
)
def test_what_is_no_precision_is_refused(written: Any, message: str) -> None:
    with pytest.raises(PrecisionError, match=re.escape(message)):
        parse_candidates([written])


def test_a_file_without_a_plan_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(PlanError):
        parse_candidates([str(path)])
