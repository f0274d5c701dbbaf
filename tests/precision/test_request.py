"""What is refused, and what is said about what is not."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import keras
import pytest

import tf_amp_kit as amp
from tests.precision.conftest import Machine
from tests.precision.helpers import keras_policy, now
from tf_amp_kit.errors import (
    EnvironmentUnfit,
    PrecisionError,
    PureHalfWarning,
    SlowPrecisionWarning,
)
from tf_amp_kit.precision.request import LEVELS

pytestmark = pytest.mark.usefixtures("machine")


REFUSALS = [
    (
        {"name": "bf17"},
        PrecisionError,
        "Unknown precision. Expected one of ['auto', 'bf16', 'bfloat16', 'float16', 'float32', "
        "'fp16', 'fp32', 'half', 'mixed_bfloat16', 'mixed_float16']. Received: name='bf17'. "
        "For 8-bit formats use Keras's `model.quantize()`.",
    ),
    ({"name": None}, PrecisionError, "Received: name=None."),
    ({"name": ["bf16"]}, PrecisionError, "Received: name=['bf16']."),
    (
        {"name": "bf16", "level": "O4"},
        PrecisionError,
        "Unknown level. Expected one of ['O0', 'O1', 'O2', 'O3']. Received: level='O4'. "
        "Leave it out for 'O1'.",
    ),
    ({"name": "bf16", "level": 1}, PrecisionError, "Received: level=1."),
    (
        {"name": "fp16", "level": "O0"},
        PrecisionError,
        "Level 'O0' is float32 everywhere. Expected a level from 'O1' to 'O3' with a half "
        "precision. Received: name='fp16', level='O0'. Leave the level out, or ask for 'fp32'.",
    ),
    (
        {"name": "fp32", "level": "O3"},
        PrecisionError,
        "Level 'O3' is about half precision. Expected no level with float32. "
        "Received: name='fp32', level='O3'. Leave the level out, or ask for 'bf16'.",
    ),
]


@pytest.mark.parametrize("switch", [amp.enable_amp, amp.amp_scope])
@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_a_refused_request_says_what_to_do(
    switch: Callable[..., object],
    arguments: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        switch(**arguments)


@pytest.mark.parametrize(("arguments", "error", "message"), REFUSALS)
def test_a_refused_request_changes_nothing(
    arguments: dict[str, str], error: type[Exception], message: str
) -> None:
    amp.enable_amp("bf16", level="O2")
    with pytest.raises(error):
        amp.enable_amp(**arguments)
    assert now() == (
        "mixed_bfloat16",
        amp.AmpState("bfloat16", "O2"),
    )


def test_another_floatx_is_refused() -> None:
    keras.config.set_floatx("bfloat16")
    message = (
        "Mixed precision starts from float32. Expected keras.config.floatx() == 'float32'. "
        "Received: keras.config.floatx()='bfloat16'. Call keras.config.set_floatx('float32') "
        "first; for half-precision variables use level='O3'."
    )
    with pytest.raises(EnvironmentUnfit, match=re.escape(message)):
        amp.enable_amp("bf16")


def test_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    message = (
        "Keras runs on another backend. Expected keras.config.backend() == 'tensorflow'. "
        "Received: keras.config.backend()='jax'. Set the environment variable "
        "KERAS_BACKEND=tensorflow before Keras is imported."
    )
    with pytest.raises(EnvironmentUnfit, match=re.escape(message)):
        amp.enable_amp("bf16")


@pytest.mark.parametrize("level", LEVELS)
def test_another_floatx_is_refused_at_every_level(level: str) -> None:
    keras.config.set_floatx("float16")
    with pytest.raises(EnvironmentUnfit):
        amp.enable_amp(level=level)


def test_a_slow_precision_is_warned_about_with_the_reason(machine: Machine) -> None:
    machine.fast["float16"] = False
    message = (
        "float16 runs slower than float32 on this machine: CPU:0 has no float16 units. "
        "Received: name='fp16'. 'auto' picks bfloat16 here."
    )
    with pytest.warns(SlowPrecisionWarning, match=f"^{re.escape(message)}$"):
        amp.enable_amp("fp16")


def test_a_slow_precision_is_switched_on_all_the_same(machine: Machine) -> None:
    machine.fast["float16"] = False
    with pytest.warns(SlowPrecisionWarning):
        amp.enable_amp("fp16")
    assert keras_policy() == "mixed_float16"


def test_auto_that_finds_nothing_fast_says_so(machine: Machine) -> None:
    machine.auto_precision = "float32"
    message = (
        "'auto' picks float32: CPU:0 has no units for half. Received: name='auto'. "
        "Ask for 'bf16' or 'fp16' to run half precision anyway."
    )
    with pytest.warns(SlowPrecisionWarning, match=f"^{re.escape(message)}$"):
        amp.enable_amp()


def test_pure_half_is_warned_about_with_what_it_costs() -> None:
    message = (
        "Level 'O3' keeps variables and optimizer state in bfloat16: there are no float32 "
        "master weights, so updates below half a rounding step of a weight are lost, and "
        "Keras adds no loss scaling. Received: level='O3'. Level 'O2' keeps master weights."
    )
    with pytest.warns(PureHalfWarning, match=f"^{re.escape(message)}$"):
        amp.enable_amp("bf16", level="O3")


def warnings_of(switch: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        switch()
    return caught


def test_two_causes_give_two_warnings(machine: Machine) -> None:
    machine.fast["float16"] = False
    caught = warnings_of(lambda: amp.enable_amp("fp16", level="O3"))
    assert [each.category for each in caught] == [SlowPrecisionWarning, PureHalfWarning]


def test_one_cause_is_warned_about_once(machine: Machine) -> None:
    machine.fast["float16"] = False
    warnings_of(lambda: amp.enable_amp("fp16"))
    assert warnings_of(lambda: amp.amp_scope("half")) == []


def test_another_cause_is_warned_about_later(machine: Machine) -> None:
    machine.fast.update(float16=False, bfloat16=False)
    warnings_of(lambda: amp.enable_amp("fp16"))
    assert len(warnings_of(lambda: amp.enable_amp("bf16"))) == 1


@pytest.mark.parametrize("fast", [True, None])
def test_fast_and_unknown_precisions_are_not_warned_about(
    machine: Machine, fast: bool | None
) -> None:
    machine.fast["float16"] = fast
    assert warnings_of(lambda: amp.enable_amp("fp16")) == []


def test_float32_does_not_ask_the_hardware(machine: Machine) -> None:
    amp.enable_amp("fp32")
    assert machine.times_asked == 0


@pytest.mark.parametrize("switch", [amp.enable_amp, amp.amp_scope])
def test_a_warning_points_at_the_caller(machine: Machine, switch: Callable[[str], object]) -> None:
    machine.fast["float16"] = False
    caught = warnings_of(lambda: switch("fp16"))
    assert caught[0].filename == __file__


def test_a_warning_turned_into_an_error_leaves_nothing_switched_on(machine: Machine) -> None:
    machine.fast["float16"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SlowPrecisionWarning):
            amp.enable_amp("fp16")
    assert now() == ("float32", None)
