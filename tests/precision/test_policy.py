"""Switching on and off: what Keras is told, and what is recorded."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.precision.conftest import Machine
from tests.precision.helpers import in_new_thread, keras_policy, now
from tf_amp_kit.errors import (
    PrecisionError,
)

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bf16", "mixed_bfloat16"),
        ("bfloat16", "mixed_bfloat16"),
        ("mixed_bfloat16", "mixed_bfloat16"),
        ("BF16", "mixed_bfloat16"),
        ("fp16", "mixed_float16"),
        ("half", "mixed_float16"),
        ("mixed_float16", "mixed_float16"),
        ("fp32", "float32"),
        ("float32", "float32"),
    ],
)
def test_a_name_sets_the_keras_policy(name: str, expected: str) -> None:
    amp.enable_amp(name)
    assert keras_policy() == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [("O1", "mixed_float16"), ("O2", "mixed_float16"), ("O3", "float16")],
)
@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.PureHalfWarning")
def test_a_level_sets_the_keras_policy(level: str, expected: str) -> None:
    amp.enable_amp("fp16", level=level)
    assert keras_policy() == expected


@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.PureHalfWarning")
def test_level_o3_makes_variables_half() -> None:
    amp.enable_amp("bf16", level="O3")
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    assert layer.kernel.dtype == "bfloat16"


def test_a_mixed_level_keeps_variables_in_float32() -> None:
    amp.enable_amp("bf16")
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    assert layer.kernel.dtype == "float32"


def test_a_layer_computes_in_what_was_switched_on() -> None:
    amp.enable_amp("bf16")
    output = keras.layers.Dense(2)(np.ones((1, 3), "float32"))
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"


def test_an_existing_layer_keeps_its_policy() -> None:
    layer = keras.layers.Dense(2)
    amp.enable_amp("bf16")
    assert layer.compute_dtype == "float32"


def test_the_level_is_recorded_where_keras_cannot_hold_it() -> None:
    amp.enable_amp("bf16", level="O2")
    assert amp.current_amp() == amp.AmpState("bfloat16", "O2")


def test_enable_returns_the_current_state() -> None:
    assert amp.enable_amp("bf16") is amp.current_amp()


def test_float32_is_always_level_o0() -> None:
    assert amp.enable_amp("fp32").level == "O0"


def test_level_o0_without_a_name_is_float32() -> None:
    amp.enable_amp(level="O0")
    assert amp.current_amp() == amp.AmpState("float32", "O0")


def test_level_o0_does_not_ask_the_hardware(machine: Machine) -> None:
    amp.enable_amp(level="O0")
    assert machine.times_asked == 0


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_auto_is_what_the_hardware_picks(machine: Machine, precision: str) -> None:
    machine.auto_precision = precision
    amp.enable_amp()
    assert keras_policy() == f"mixed_{precision}"


def test_auto_is_remembered_as_what_was_requested() -> None:
    assert amp.enable_amp("auto").requested == "auto"


def test_the_state_prints_itself() -> None:
    assert str(amp.enable_amp("half", level="O2")) == (
        "float16, level O2, Keras policy mixed_float16"
    )


def test_the_state_as_a_dictionary() -> None:
    assert amp.enable_amp("half").to_dict() == {
        "precision": "float16",
        "level": "O1",
        "policy_name": "mixed_float16",
        "requested": "half",
    }


def test_nothing_is_current_at_first() -> None:
    assert amp.current_amp() is None


def test_the_record_outlives_clear_session() -> None:
    amp.enable_amp("bf16")
    keras.utils.clear_session()
    assert now() == ("float32", amp.AmpState("bfloat16", "O1"))


def test_the_record_is_seen_from_a_thread_that_keras_leaves_in_float32() -> None:
    amp.enable_amp("bf16")
    assert in_new_thread(now) == (
        "float32",
        amp.AmpState("bfloat16", "O1"),
    )


def test_enable_in_a_thread_is_recorded_for_all() -> None:
    in_new_thread(lambda: amp.enable_amp("bf16"))
    assert now() == ("float32", amp.AmpState("bfloat16", "O1"))


def test_the_later_of_two_requests_counts() -> None:
    amp.enable_amp("bf16")
    amp.enable_amp("fp16")
    assert now() == (
        "mixed_float16",
        amp.AmpState("float16", "O1"),
    )


def test_disable_restores_the_policy_from_before_the_first_request() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    amp.enable_amp("fp16")
    amp.enable_amp("fp32")
    amp.disable_amp()
    assert now() == ("mixed_bfloat16", None)


def test_disable_leaves_a_policy_alone_that_keras_was_given_directly() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    amp.disable_amp()
    assert keras_policy() == "mixed_bfloat16"


def test_disable_twice_does_no_more_than_once() -> None:
    amp.enable_amp("bf16")
    amp.disable_amp()
    keras.config.set_dtype_policy("mixed_float16")
    amp.disable_amp()
    assert keras_policy() == "mixed_float16"


@pytest.mark.parametrize("answer", [True, False, None])
def test_is_supported_is_the_hardwares_answer(machine: Machine, answer: bool | None) -> None:
    machine.fast["bfloat16"] = answer
    assert amp.is_supported("bf16") is answer


def test_float32_is_always_supported() -> None:
    assert amp.is_supported("fp32") is True


def test_auto_is_not_a_precision_that_is_supported_or_not() -> None:
    with pytest.raises(PrecisionError, match=re.escape("Received: precision='auto'")):
        amp.is_supported("auto")
