"""Any optimizer in; out comes one that scales where the precision needs it."""

from __future__ import annotations

import re
from typing import Any

import keras
import pytest

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import INF, bits, constant, scaled, told, variable

make = amp.make_loss_scale_optimizer
OptimizerError = amp.errors.OptimizerError
KerasWrapper = keras.optimizers.LossScaleOptimizer

NEEDS = {
    "fp16": True,
    "float16": True,
    "half": True,
    "mixed_float16": True,
    "bf16": False,
    "bfloat16": False,
    "fp32": False,
    "float32": False,
}


@pytest.mark.parametrize("precision", NEEDS)
def test_only_float16_is_wrapped(precision: str) -> None:
    inner = keras.optimizers.Adam()
    made = make(inner, precision=precision)
    if NEEDS[precision]:
        assert type(made) is amp.LossScaleOptimizer and made.inner_optimizer is inner
    else:
        assert made is inner


@pytest.mark.parametrize(
    "given",
    [
        "adam",
        "Adam",
        {"class_name": "Adam", "config": {"learning_rate": 0.001}},
        keras.optimizers.serialize(keras.optimizers.Adam()),
    ],
    ids=["name", "class name", "config", "serialized"],
)
def test_a_name_or_a_config_becomes_an_optimizer(given: Any) -> None:
    assert type(make(given, precision="fp16").inner_optimizer) is keras.optimizers.Adam
    assert type(make(given, precision="bf16")) is keras.optimizers.Adam


def test_a_config_is_left_as_it_is() -> None:
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    config = keras.optimizers.serialize(amp.LossScaleOptimizer(keras.optimizers.SGD(schedule)))
    first = make(config, precision="fp16").get_config()
    assert make(config, precision="fp16").get_config() == first


@pytest.mark.parametrize(
    ("policy", "is_wrapped"),
    [
        ("mixed_float16", True),
        ("float16", True),
        ("mixed_bfloat16", False),
        ("bfloat16", False),
        ("float32", False),
        ("float64", False),
    ],
)
def test_without_a_precision_the_global_policy_decides(policy: str, is_wrapped: bool) -> None:
    keras.config.set_dtype_policy(policy)
    assert isinstance(make("sgd"), KerasWrapper) is is_wrapped


def test_a_map_of_policies_decides_by_its_default() -> None:
    policy_map = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_float16")
    keras.config.set_dtype_policy(policy_map)
    assert type(make("sgd")) is amp.LossScaleOptimizer


@pytest.mark.parametrize(("asked", "is_wrapped"), [("fp16", True), ("bf16", False)])
def test_what_was_asked_for_goes_before_the_global_policy(asked: str, is_wrapped: bool) -> None:
    with amp.amp_scope(asked):
        keras.config.set_dtype_policy("mixed_bfloat16" if is_wrapped else "mixed_float16")
        assert isinstance(make("sgd"), KerasWrapper) is is_wrapped


def test_a_precision_goes_before_what_was_asked_for() -> None:
    with amp.amp_scope("fp16"):
        assert type(make("sgd", precision="bf16")) is keras.optimizers.SGD


@pytest.mark.parametrize("scaling", ["dynamic", "static"])
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_kind_of_scaling_always_wraps(scaling: str, precision: str, recwarn: Any) -> None:
    made = make("sgd", precision=precision, scaling=scaling)
    assert (made.get_config()["scaling"], told(recwarn)) == (scaling, [])


@pytest.mark.parametrize("scaling", ["dynamic", "static"])
def test_scaling_asked_for_in_bfloat16_is_done_and_noted(scaling: str, recwarn: Any) -> None:
    assert make("sgd", precision="bf16", scaling=scaling).get_config()["scaling"] == scaling
    assert told(recwarn) == [
        "bfloat16 has the range of float32, so scaling the loss gains nothing there and costs "
        f"time. Received: scaling={scaling!r}. Leave it out for bfloat16."
    ]
    assert recwarn[0].filename == __file__


def test_settings_go_to_the_wrapper() -> None:
    made = make("sgd", precision="fp16", initial_scale=8, hysteresis=3, name="mine")
    config = made.get_config()
    assert (config["initial_scale"], config["hysteresis"], config["name"]) == (8.0, 3, "mine")


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("settings", [{"hysteresis": 0}, {"initial_scale": -1}, {"min_scale": "1"}])
def test_settings_are_checked_in_every_precision(precision: str, settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(OptimizerError, match=re.escape(f"Received: {name}={settings[name]!r}.")):
        make("sgd", precision=precision, **settings)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_a_misspelt_setting_is_refused_in_every_precision(precision: str) -> None:
    with pytest.raises((TypeError, OptimizerError), match="initial_scal"):
        make("sgd", precision=precision, initial_scal=8)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_it_can_be_called_on_what_it_gave(precision: str) -> None:
    once = make("adam", precision=precision, scaling="dynamic" if precision == "fp32" else "auto")
    assert make(once, precision=precision) is once
    assert make(once, precision="bf16") is once


def test_the_same_settings_again_change_nothing() -> None:
    once = make("adam", precision="fp16", initial_scale=8, hysteresis=2)
    assert make(once, precision="fp16", scaling="dynamic", initial_scale=8, hysteresis=2) is once


@pytest.mark.parametrize("other", [{"initial_scale": 16}, {"scaling": "static"}, {"hysteresis": 2}])
def test_other_settings_are_refused_not_dropped(other: dict[str, Any]) -> None:
    once = make("adam", precision="fp16", initial_scale=8)
    message = "The optimizer scales the loss already, with other settings."
    with pytest.raises(OptimizerError, match=re.escape(message)):
        make(once, precision="fp16", **other)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_keras_s_own_wrapper_becomes_ours_with_its_state(precision: str) -> None:
    theirs = KerasWrapper(keras.optimizers.Adam(0.1), initial_scale=4096, dynamic_growth_steps=5)
    weight = variable(1.0)
    for grad in (1.0, INF, 1.0, 2.0):
        theirs.apply([constant(grad)], [weight])
    before = bits(*theirs.inner_optimizer.variables)
    ours = make(theirs, precision=precision)
    assert type(ours) is amp.LossScaleOptimizer
    assert ours.inner_optimizer is theirs.inner_optimizer
    assert bits(*ours.inner_optimizer.variables) == before
    assert ours.loss_scale_state() == amp.LossScaleState(2048.0)
    assert (int(ours.step_counter.numpy()), ours.name) == (2, theirs.name)
    ours.scale_loss(1.0)
    for _ in range(3):
        ours.apply([constant(1.0)], [weight])
    assert ours.loss_scale_state().scale == 4096.0  # raised at the fifth good step in a row


def test_keras_s_wrapper_may_be_turned_before_it_is_built() -> None:
    theirs = KerasWrapper(keras.optimizers.SGD(), initial_scale=2.0**30)
    ours = make(theirs, precision="fp16", hysteresis=2)
    assert ours.loss_scale_state() == amp.LossScaleState(2.0**30)
    assert ours.get_config()["hysteresis"] == 2


@pytest.mark.parametrize(("scale", "expected"), [(0.0, 1.0), (INF, 2.0**24)])
def test_a_ruined_scale_of_keras_s_wrapper_is_mended(scale: float, expected: float) -> None:
    theirs = KerasWrapper(keras.optimizers.SGD())
    theirs.build([variable(1.0)])
    theirs.dynamic_scale.assign(scale)
    assert make(theirs, precision="fp16").loss_scale_state().scale == expected


@pytest.mark.parametrize("scaling", ["auto", "static"])
def test_a_loss_scale_factor_becomes_a_static_scale(scaling: str) -> None:
    inner = keras.optimizers.SGD(1.0, loss_scale_factor=128.0)
    made = make(inner, precision="fp16", scaling=scaling)
    assert (made.get_config()["scaling"], made.loss_scale_state().scale) == ("static", 128.0)
    assert inner.loss_scale_factor is None
    weight = variable(1.0)
    made.apply([made.scale_loss(constant(0.5))], [weight])
    assert weight.numpy() == [0.5]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_loss_scale_factor_is_kept_where_nothing_is_wrapped(precision: str) -> None:
    inner = keras.optimizers.SGD(loss_scale_factor=128.0)
    assert make(inner, precision=precision) is inner
    assert inner.loss_scale_factor == 128.0


@pytest.mark.parametrize("settings", [{"scaling": "dynamic"}, {"initial_scale": 64.0}])
def test_a_loss_scale_factor_beside_another_scale_is_refused(settings: dict[str, Any]) -> None:
    inner = keras.optimizers.SGD(loss_scale_factor=128.0)
    (name,) = settings
    message = (
        "The optimizer has a fixed loss scale of its own. Expected no other beside it. "
        f"Received: loss_scale_factor=128.0, {name}={settings[name]!r}. "
        "Set its loss_scale_factor to None, or leave these settings out."
    )
    with pytest.raises(OptimizerError, match=re.escape(message)):
        make(inner, precision="fp16", **settings)
    assert inner.loss_scale_factor == 128.0


@pytest.mark.parametrize("given", [None, 3, "adamm", keras.optimizers.SGD, object()])
def test_what_is_no_optimizer_is_refused(given: Any) -> None:
    message = "Expected the name of a Keras optimizer, a config, or a keras.optimizers.Optimizer. "
    with pytest.raises(OptimizerError, match=re.escape(f"{message}Received: optimizer={given!r}.")):
        make(given, precision="fp16")


@pytest.mark.parametrize("scaling", ["Auto", None, "none", False])
def test_an_unknown_kind_of_scaling_is_refused(scaling: Any) -> None:
    message = (
        "Unknown kind of loss scaling. Expected 'auto', 'dynamic' or 'static'. "
        f"Received: scaling={scaling!r}."
    )
    with pytest.raises(OptimizerError, match=re.escape(message)):
        make("adam", precision="fp16", scaling=scaling)


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(amp.errors.PrecisionError, match=re.escape("Received: precision='fp8'")):
        make("adam", precision="fp8")


@pytest.mark.parametrize("policy", ["mixed_float16", "float32"])
def test_compile_does_not_wrap_it_again(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    optimizer = scaled()
    model.compile(optimizer, "mse")
    assert model.optimizer is optimizer
