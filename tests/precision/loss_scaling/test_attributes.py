"""Hyper-parameters are the inner optimizer's; names of TensorFlow 2 say what to write."""

from __future__ import annotations

import re
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import BAD, GOOD, LABELS, constant, fit, scaled, variable

CLIPPING = {"clipnorm": 0.5, "global_clipnorm": 0.5, "clipvalue": 0.5}


def wrapped(**kwargs: Any) -> amp.LossScaleOptimizer:
    return scaled(keras.optimizers.SGD(0.1, momentum=0.9, **kwargs), initial_scale=8)


@pytest.mark.parametrize("name", ["weight_decay", *CLIPPING])
def test_what_was_given_to_the_inner_optimizer_is_read(name: str) -> None:  # L10
    assert getattr(wrapped(**{name: 0.5}), name) == 0.5
    assert getattr(wrapped(), name) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("momentum", 0.9),
        ("nesterov", False),
        ("use_ema", False),
        ("ema_momentum", 0.99),
        ("gradient_accumulation_steps", None),
        ("loss_scale_factor", None),
    ],
)
def test_other_hyper_parameters_are_read_too(name: str, value: Any) -> None:  # L10
    assert getattr(wrapped(), name) == value


@pytest.mark.parametrize("name", ["weight_decay", "momentum", "clipnorm", "ema_momentum"])
def test_what_is_written_reaches_the_inner_optimizer(name: str) -> None:  # L10
    optimizer = wrapped()
    setattr(optimizer, name, 0.25)
    assert getattr(optimizer.inner_optimizer, name) == 0.25
    assert getattr(optimizer, name) == 0.25


def test_what_was_written_is_used_and_saved() -> None:  # L10
    optimizer, weight = wrapped(), variable(0.0, 0.0)
    optimizer.momentum, optimizer.clipnorm = 0.0, 1.0
    optimizer.apply([constant(24.0, 32.0)], [weight])  # a true gradient of (3, 4)
    assert weight.numpy() == pytest.approx([-0.06, -0.08], rel=1e-6)
    inner = optimizer.get_config()["inner_optimizer"]["config"]
    assert (inner["momentum"], inner["clipnorm"]) == (0.0, 1.0)


def test_attributes_of_any_inner_optimizer_are_reached() -> None:  # L10
    optimizer = amp.LossScaleOptimizer(keras.optimizers.Adam(beta_1=0.8, amsgrad=True))
    optimizer.beta_2 = 0.7
    assert (optimizer.beta_1, optimizer.amsgrad, optimizer.inner_optimizer.beta_2) == (
        0.8,
        True,
        0.7,
    )


def test_an_attribute_of_the_users_own_stays_on_the_wrapper() -> None:
    optimizer = wrapped()
    optimizer.note = "mine"
    assert optimizer.note == "mine" and not hasattr(optimizer.inner_optimizer, "note")


def test_names_of_the_inner_optimizer_never_hide_the_wrappers_own() -> None:
    class Odd(keras.optimizers.SGD):
        def __init__(self) -> None:
            super().__init__(0.5)
            self.dynamic_scale, self.step_counter, self.initial_scale = 3, 4, 5

    optimizer = amp.LossScaleOptimizer(Odd(), initial_scale=8)
    assert (float(optimizer.dynamic_scale.numpy()), int(optimizer.step_counter.numpy())) == (8, 0)
    assert (optimizer.initial_scale, optimizer.inner_optimizer.dynamic_scale) == (8, 3)


def test_iterations_and_learning_rate_are_the_inner_optimizers() -> None:
    optimizer = wrapped()
    optimizer.learning_rate = 0.25
    assert float(optimizer.inner_optimizer.learning_rate.numpy()) == 0.25
    assert optimizer.iterations is optimizer.inner_optimizer.iterations


def test_a_loss_scale_factor_cannot_be_written_beside_the_scale() -> None:
    message = "Gradients would be divided twice. Expected no factor beside a loss scale. "
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        wrapped().loss_scale_factor = 8.0
    wrapped().loss_scale_factor = None


@pytest.mark.parametrize("name", ["initial_scale", "dynamic_growth_steps"])
def test_settings_that_would_be_ignored_cannot_be_written(name: str) -> None:
    message = f"Settings are fixed once an optimizer exists. Received: {name}=10."
    with pytest.raises(amp.errors.OptimizerError, match=re.escape(message)):
        setattr(wrapped(), name, 10)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("get_scaled_loss", "Call scale_loss(loss)."),
        ("get_unscaled_gradients", "call unscale(grads) and then apply_unscaled(grads, variables)"),
        ("minimize", "Compute gradients of scale_loss(loss) with a tf.GradientTape"),
        ("loss_scale", "Read dynamic_scale, or loss_scale_state().scale on the host."),
        ("dynamic", 'Pass scaling="dynamic" or "static".'),
        ("dynamic_counter", "Read step_counter."),
    ],
)
def test_a_name_of_tensorflow_2_says_what_to_write_instead(name: str, way_out: str) -> None:
    optimizer = wrapped()
    assert not hasattr(optimizer, name)
    with pytest.raises(AttributeError) as caught:
        getattr(optimizer, name)
    message = str(caught.value)
    assert message.startswith(f"'LossScaleOptimizer' object has no attribute {name!r}. ")
    assert way_out in message


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(
        AttributeError, match=r"^'LossScaleOptimizer' object has no attribute 'x'\.$"
    ):
        _ = wrapped().x


def test_exclude_from_weight_decay_reaches_the_inner_optimizer() -> None:
    optimizer = scaled(keras.optimizers.SGD(1.0, weight_decay=0.5))
    kernel, bias = variable(1.0, name="kernel"), variable(1.0, name="bias")
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.apply([constant(0.0), constant(0.0)], [kernel, bias])
    assert (kernel.numpy(), bias.numpy()) == ([0.5], [1.0])


def small_model(optimizer: Any) -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def test_a_learning_rate_scheduler_sets_it() -> None:
    model, seen = small_model(wrapped()), []
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    look = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: seen.append(float(model.optimizer.learning_rate.numpy()))
    )
    fit(model, GOOD, epochs=2, callbacks=[schedule, look])
    assert seen == pytest.approx([0.05, 0.025])


def test_a_plateau_reduces_the_learning_rate() -> None:
    model = small_model(wrapped())
    plateau = keras.callbacks.ReduceLROnPlateau("loss", factor=0.1, patience=1, min_delta=1e9)
    fit(model, GOOD, epochs=2, callbacks=[plateau])
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(0.01)


def test_a_schedule_advances_with_applied_steps_alone() -> None:
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [1.0, 0.5, 0.25])
    optimizer, weight = scaled(keras.optimizers.SGD(schedule), hysteresis=9), variable(0.0)
    for grad in (1.0, np.inf, np.nan, 1.0, 1.0):
        optimizer.apply([optimizer.scale_loss(constant(grad))], [weight])
    assert weight.numpy() == [-1.75]


def test_averaged_weights_are_swapped_for_evaluation() -> None:
    inner = keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5)
    model = small_model(scaled(inner))
    swap = keras.callbacks.SwapEMAWeights(swap_on_epoch=True)
    fit(model, GOOD, BAD, GOOD * 2, epochs=2, callbacks=[swap], validation_data=(GOOD, LABELS))
    # After training the model holds the averages, and the optimizer the weights.
    averages = [v.numpy() for v in inner.variables if "average" in v.path]
    assert averages and np.isfinite(averages[0]).all()


def test_averages_replace_the_weights_when_training_ends() -> None:
    inner = keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5)
    model = small_model(scaled(inner))
    fit(model, GOOD, BAD, GOOD)
    averages = [v.numpy().tolist() for v in inner.variables if "average" in v.path]
    assert [w.tolist() for w in model.get_weights()] == averages
