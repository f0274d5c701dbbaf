"""Losses, metrics and the optimizer of a twin."""

from __future__ import annotations

import functools
import re
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.precision.conversion.helpers import bits, optimizer_bits
from tests.precision.conversion.models import (
    built,
    data_for,
    functional,
    nested_sequential,
    shared_layer,
    trained,
)
from tf_amp_kit.errors import ConversionError, ConversionWarning

KerasWrapper = keras.optimizers.LossScaleOptimizer


def stepped(*models: keras.Model) -> list[Any]:
    """The weights of each after one more step."""
    inputs, targets = data_for(models[0])
    for model in models:
        model.train_on_batch(inputs, targets)
    return [bits(model.get_weights()) for model in models]


def test_losses_metrics_and_weights_of_losses_go_on() -> None:
    def squared(target: Any, output: Any) -> Any:
        return keras.ops.mean(keras.ops.square(target - output), axis=-1)

    def bias(target: Any, output: Any) -> Any:
        return keras.ops.mean(output - target, axis=-1)

    metrics = [bias, "mae", keras.metrics.RootMeanSquaredError(name="rms")]
    model = trained(functional, "float32", loss=squared, loss_weights=[2.0], metrics=metrics)
    twin = amp.to_float32(amp.convert_model(model, "fp16"))
    inputs, targets = data_for(model)
    expected = model.evaluate(inputs, targets, verbose=0, return_dict=True)
    assert set(expected) == {"loss", "bias", "mae", "rms"}
    assert twin.evaluate(inputs, targets, verbose=0, return_dict=True) == expected


def test_metrics_of_the_twin_count_apart() -> None:
    model = trained(functional, "float32", metrics=[keras.metrics.MeanSquaredError(name="m")])
    inputs, targets = data_for(model)
    expected = model.evaluate(inputs, targets, verbose=0)
    twin = amp.to_float32(model)
    twin.evaluate(inputs, targets * 9, verbose=0)
    assert float(model.get_metrics_result()["m"]) == pytest.approx(expected[1])


@pytest.mark.parametrize("argument", ["run_eagerly", "steps_per_execution"])
def test_how_steps_run_goes_on(argument: str) -> None:
    value = {"run_eagerly": True, "steps_per_execution": 3}[argument]
    model = functional()
    model.compile("sgd", "mse", **{argument: value})
    assert getattr(amp.convert_model(model, "bf16"), argument) == value


def test_a_schedule_goes_on_at_its_step() -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    model = trained(functional, "float32", optimizer=keras.optimizers.SGD(schedule, momentum=0.9))
    twin = amp.convert_model(model, "bf16")
    # Two steps are made: 0.5 * 0.5**2.
    assert float(twin.optimizer.learning_rate) == 0.125


def test_a_learning_rate_that_was_set_goes_on() -> None:
    model = trained(functional, "float32")
    model.optimizer.learning_rate = 0.25
    assert float(amp.convert_model(model, "fp16").optimizer.learning_rate) == 0.25


def test_weights_spared_from_decay_stay_spared() -> None:
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model = trained(functional, "float32", optimizer=optimizer)
    first, second = stepped(model, amp.to_float32(amp.convert_model(model, "bf16")))
    assert first == second


def an_optimizer(name: str) -> Any:
    """An optimizer with all the state that its class can have."""
    made: Any = getattr(keras.optimizers, name)
    if name == "SGD":
        return made(0.01, momentum=0.9, use_ema=True, gradient_accumulation_steps=3)
    if name == "RMSprop":
        return made(0.01, momentum=0.9, centered=True)
    if name == "Adam":
        return made(0.01, amsgrad=True)
    if name == "MultiOptimizer":
        biases = {".*bias": keras.optimizers.Nadam(0.01)}
        return made(keras.optimizers.OptimizerMap(keras.optimizers.Adafactor(0.01), biases))
    return made(0.01)


# Keras 3.10 asks TensorFlow's variables for a path there, and cannot train with it.
BROKEN = {"Muon"} if keras.__version__.startswith("3.10.") else set()
OPTIMIZERS = [
    name
    for name, one in vars(keras.optimizers).items()
    if isinstance(one, type)
    and issubclass(one, keras.optimizers.Optimizer)
    and name not in {"Optimizer", "LossScaleOptimizer", *BROKEN}
]
# Slots, variables that a wrapper does not track, and slots of other shapes.
QUICK_OPTIMIZERS = {"Adam", "Nadam", "Adafactor"}


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ("float32", ["fp16", "fp32"]),
        ("mixed_float16", ["fp32", "fp16"]),
        ("mixed_float16", ["fp16"]),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK_OPTIMIZERS else pytest.param(name, marks=pytest.mark.slow)
        for name in OPTIMIZERS
    ],
)
def test_training_goes_on_as_if_nothing_had_been_converted(
    name: str, policy: str, steps: list[str]
) -> None:
    model = trained(functional, policy, optimizer=an_optimizer(name))
    twin = functools.reduce(amp.convert_model, steps, model)
    for _ in range(2):
        first, second = stepped(model, twin)
    assert first == second


class Forgetful(keras.optimizers.SGD):
    """Has a state that its config does not tell of."""

    has_more = False

    def build(self, variables: Any) -> None:
        super().build(variables)
        if self.has_more:
            self.more = self.add_variable((2,), name="more")


def test_a_state_that_does_not_fit_is_left_with_a_warning() -> None:
    optimizer = Forgetful(0.1)
    optimizer.has_more = True
    model = trained(functional, "float32", optimizer=optimizer)
    message = (
        "The config of Forgetful makes an optimizer with other variables: the optimizer's state "
        "is not taken over. Expected {"
    )
    with pytest.warns(ConversionWarning, match=re.escape(message)):
        twin = amp.convert_model(model, "bf16")
    assert int(twin.optimizer.iterations.numpy()) == 0


class Registry:
    """What `held_by` does not look into."""

    def __init__(self, *variables: Any) -> None:
        self.variables = variables


class Counting(keras.optimizers.SGD):
    def build(self, variables: Any) -> None:
        super().build(variables)
        self.registry = Registry(self.add_variable((), name="count"))

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        self.assign_add(self.registry.variables[0], 1)


def test_a_state_that_hangs_on_no_attribute_goes_on() -> None:
    model = trained(functional, "float32", optimizer=Counting(0.1))
    twin = amp.convert_model(model, "fp16")
    (count,) = twin.optimizer.inner_optimizer.registry.variables
    assert float(count.numpy()) == 2 * len(model.trainable_variables)


def test_a_model_compiled_and_never_trained_stays_so() -> None:
    model = functional()
    model.compile("adam", "mse")
    twin = amp.convert_model(model, "fp16")
    assert isinstance(twin.optimizer, KerasWrapper) and not twin.optimizer.built
    assert twin.optimizer.inner_optimizer is not model.optimizer


def test_a_model_that_is_not_compiled_stays_so() -> None:
    assert not amp.convert_model(functional(), "fp16").compiled


def test_frozen_layers_stay_frozen() -> None:
    model = nested_sequential()
    model.layers[0].trainable = False
    model.get_layer("inner").layers[0].trainable = False
    model.compile("sgd", "mse")
    twin = amp.convert_model(model, "bf16")
    assert [one.shape for one in twin.trainable_variables] == [(3, 2), (2,)]
    assert twin.get_layer("inner").trainable and not twin.layers[0].trainable


def test_a_layer_thawed_inside_a_frozen_one_stays_thawed() -> None:
    model = nested_sequential()
    model.trainable = False
    model.get_layer("inner").layers[0].trainable = True
    inner = amp.convert_model(model, "bf16").get_layer("inner")
    assert [layer.trainable for layer in inner.layers] == [True, False]


def test_a_shared_layer_in_a_frozen_model_stays_thawed() -> None:
    model = shared_layer()
    model.get_layer("inner").trainable = False
    model.get_layer("shared").trainable = True
    twin = amp.convert_model(model, "bf16")
    assert twin.get_layer("shared").trainable and not twin.get_layer("inner").trainable


def test_keras_s_own_wrapper_comes_off_and_its_slots_go_on() -> None:
    model = trained(functional, "mixed_float16")
    twin = amp.to_float32(model)
    assert type(twin.optimizer) is keras.optimizers.Adam
    assert optimizer_bits(twin.optimizer) == optimizer_bits(model.optimizer)
    assert int(twin.optimizer.iterations.numpy()) == 2


def test_the_loss_scale_of_a_float16_model_goes_on_in_its_twin() -> None:
    model = trained(functional, "mixed_float16")
    model.optimizer.dynamic_scale.assign(512.0)
    twin = amp.convert_model(model, "fp16")
    assert float(twin.optimizer.dynamic_scale.numpy()) == 512.0
    assert int(twin.optimizer.step_counter.numpy()) == 2


def test_our_wrapper_comes_off_too() -> None:
    optimizer = amp.make_loss_scale_optimizer("adam", precision="fp16")
    model = trained(functional, "mixed_float16", optimizer=optimizer)
    twin = amp.convert_model(model, "bf16")
    assert type(twin.optimizer) is keras.optimizers.Adam
    assert optimizer_bits(twin.optimizer) == optimizer_bits(model.optimizer)


def test_our_wrapper_stays_in_float16_with_its_settings_and_counts() -> None:
    optimizer = amp.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=64.0)
    model = trained(functional, "mixed_float16", optimizer=optimizer)
    twin = amp.convert_model(model, "fp16")
    assert twin.optimizer is not optimizer
    assert twin.optimizer.get_config() == optimizer.get_config()
    assert twin.optimizer.loss_scale_state() == amp.LossScaleState(64.0, applied_steps=2)


def test_a_wrapper_that_was_there_without_float16_stays() -> None:
    optimizer = amp.LossScaleOptimizer(keras.optimizers.SGD(0.1), scaling="static")
    model = trained(functional, "float32", optimizer=optimizer)
    twin = amp.convert_model(model, "bf16")
    assert isinstance(twin.optimizer, amp.LossScaleOptimizer)
    assert twin.optimizer.loss_scale_state() == optimizer.loss_scale_state()


def test_a_float16_model_that_refused_scaling_does_so_in_its_twin() -> None:
    model = trained(functional, "mixed_float16", auto_scale_loss=False)
    assert type(amp.convert_model(model, "fp16").optimizer) is keras.optimizers.Adam


def test_slots_in_pure_half_become_float32_without_loss() -> None:
    model = trained(functional, "bfloat16")
    twin = amp.to_float32(model)
    for old, new in zip(model.optimizer.variables, twin.optimizer.variables, strict=True):
        assert new.dtype == ("int64" if old.dtype == "int64" else "float32")
        assert np.array_equal(np.asarray(old.numpy(), new.numpy().dtype), new.numpy())


def test_an_inner_model_that_is_compiled_stays_so() -> None:
    inner = trained(functional, "float32")
    inputs = keras.Input((4,))
    twin = amp.convert_model(keras.Model(inputs, inner(inputs)), "bf16").get_layer("plain")
    assert optimizer_bits(twin.optimizer) == optimizer_bits(inner.optimizer)


class AddsALoss(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(keras.ops.sum(inputs))
        return inputs


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: keras.layers.Dense(2, activity_regularizer="l2", name="x"), "layer 'x'"),
        (lambda: AddsALoss(name="x"), f"layer 'x' ({__file__}:"),
    ],
)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_twin_whose_fit_would_refuse_a_half_loss_is_warned_about(
    make: Any, place: str, precision: str
) -> None:
    model = keras.Sequential([keras.Input((4,)), make(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    message = f"`fit` will raise TypeError: losses are added in half in 1 place: {place}"
    with pytest.warns(ConversionWarning, match=re.escape(message)) as caught:
        twin = amp.convert_model(model, precision)
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match="float32"):
        twin.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)
    amp.pin_float32(twin, "x")
    twin.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)


def test_a_loss_in_float32_is_no_reason_to_warn() -> None:
    wide = amp.layers.Float32(keras.layers.Dense(2, activity_regularizer="l2"))
    model = keras.Sequential([keras.Input((4,)), wide, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    twin = amp.convert_model(model, "bf16")
    twin.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)


class WithOwnCompile(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def compile(self, rate: float) -> None:
        super().compile(keras.optimizers.SGD(rate), "mse")


class WithBoth(WithOwnCompile):
    def get_compile_config(self) -> dict[str, Any]:
        return {"rate": float(self.optimizer.learning_rate)}

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**config)


def test_a_compile_of_the_class_s_own_is_left_to_the_user_with_a_warning() -> None:
    model = WithOwnCompile()
    model(np.zeros((1, 4)))
    model.compile(0.5)
    message = "The class WithOwnCompile has a compile() of its own, and no compile_from_config()"
    with pytest.warns(ConversionWarning, match=re.escape(message)) as caught:
        twin = amp.convert_model(model, "bf16")
    assert not twin.compiled
    assert caught[0].filename == __file__


def test_a_compile_that_can_be_repeated_is_repeated() -> None:
    model = built(WithBoth, "float32")
    model(np.zeros((1, 4)))
    model.compile(0.5)
    assert float(amp.convert_model(model, "bf16").optimizer.learning_rate) == 0.5


class OfNoConfig(keras.metrics.Mean):
    def __init__(self, scale: float) -> None:
        super().__init__()


def test_a_metric_without_a_config_is_named() -> None:
    model = functional()
    model.compile("sgd", "mse", metrics=[OfNoConfig(2.0)])
    with pytest.raises(
        ConversionError,
        match=r"OfNoConfig cannot be made from its own config.*convert the model before compile",
    ):
        amp.convert_model(model, "bf16")
