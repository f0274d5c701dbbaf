"""`fit` however it is compiled: the same steps applied, the same skipped."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import (
    BAD,
    GOOD,
    INF,
    LABELS,
    bits,
    constant,
    fit,
    scaled,
    variable,
)

HOW: dict[str, dict[str, Any]] = {
    "graph": {},
    "eager": {"run_eagerly": True},
    "jit": {"jit_compile": True},
    "several steps": {"steps_per_execution": 2},
    "several steps, jit": {"steps_per_execution": 2, "jit_compile": True},
}
however = pytest.mark.parametrize("how", HOW.values(), ids=HOW)


def model_of(optimizer: Any, **how: Any) -> keras.Model:
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **how)
    return model


@however
def test_bad_batches_are_skipped_and_good_ones_applied(how: dict[str, Any]) -> None:
    model = model_of(scaled(keras.optimizers.Adam(), growth_interval=2), **how)
    fit(model, GOOD, BAD, GOOD, GOOD, BAD, BAD)
    # 2**15, halved, raised after two good ones, halved twice.
    assert model.optimizer.loss_scale_state() == amp.LossScaleState(2.0**13, 3, 3, 2, 6, 1)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize("how", [{}, {"jit_compile": True}], ids=["graph", "jit"])
def test_the_reported_loss_is_not_scaled(how: dict[str, Any]) -> None:
    scaled_model = model_of(scaled(keras.optimizers.SGD(0.01)), **how)
    plain_model = model_of(keras.optimizers.SGD(0.01))
    losses = [fit(model, GOOD).history["loss"][0] for model in (scaled_model, plain_model)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_train_on_batch_takes_the_same_steps_as_fit() -> None:
    by_fit, by_batch = (model_of(scaled(keras.optimizers.Adam())) for _ in range(2))
    batches = (GOOD, BAD, GOOD * 2)
    fit(by_fit, *batches)
    for batch in batches:
        by_batch.train_on_batch(batch, LABELS)
    ends = [bits(one, *one.optimizer.variables) for one in (by_fit, by_batch)]
    assert ends[0] == ends[1]


def test_a_second_fit_goes_on_where_the_first_stopped() -> None:
    once, twice = (model_of(scaled(keras.optimizers.Adam())) for _ in range(2))
    fit(once, GOOD, BAD, GOOD * 2, BAD)
    fit(twice, GOOD, BAD), fit(twice, GOOD * 2, BAD)
    assert bits(twice, *twice.optimizer.variables) == bits(once, *once.optimizer.variables)


def test_evaluate_and_predict_count_no_steps() -> None:
    model = model_of(scaled())
    fit(model, GOOD)
    model.evaluate(BAD, LABELS, verbose=0), model.predict(BAD, verbose=0)
    assert model.optimizer.loss_scale_state() == amp.LossScaleState(2.0**15, applied_steps=1)


def test_gradients_too_small_for_float16_move_the_weights() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    moved = []
    for optimizer in (keras.optimizers.SGD(1e7), scaled(keras.optimizers.SGD(1e7))):
        model = model_of(optimizer, loss_weights=1e-9, auto_scale_loss=False)
        before = bits(model)
        fit(model, GOOD / 16)
        moved.append(bits(model) != before)
        assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert moved == [False, True]


def test_a_train_step_of_the_users_own_is_scaled() -> None:
    class Model(keras.Model):
        def train_step(self, data: Any) -> Any:
            inputs, labels = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(inputs, training=True) - labels) ** 2)
                scaled_loss = self.optimizer.scale_loss(loss)
            grads = tape.gradient(scaled_loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(grads, self.trainable_weights, strict=True))
            return {"loss": loss}

    inputs = keras.Input((2,))
    model = Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(scaled())
    fit(model, GOOD, BAD, GOOD)
    assert model.optimizer.loss_scale_state() == amp.LossScaleState(2.0**14, 2, 1, 0, 2)
    assert np.isfinite(model.get_weights()[0]).all()


@pytest.mark.parametrize("outer", ["graph", "jit"])
@pytest.mark.parametrize("inner", ["graph", "jit"])
@pytest.mark.parametrize("bad", [INF, np.nan])
def test_a_step_inside_another_function_loses_no_bad_gradient(
    outer: str, inner: str, bad: float
) -> None:
    optimizer, weight = scaled(), variable(1.0, 1.0)
    optimizer.build([weight])
    step = tf.function(
        lambda grad: optimizer.apply([grad], [weight]), jit_compile=(inner == "jit") or None
    )
    around = tf.function(lambda grad: step(grad), jit_compile=outer == "jit")
    around(constant(bad, 1.0))
    assert weight.numpy().tolist() == [1.0, 1.0]
    around(constant(2.0**14, 0.0))
    assert weight.numpy().tolist() == [0.0, 1.0]


@pytest.mark.parametrize("compiled", [True, False])
def test_steps_in_a_traced_loop_are_taken_one_by_one(compiled: bool) -> None:
    optimizer, weight = scaled(initial_scale=8, growth_interval=1), variable(0.0)
    optimizer.build([weight])

    @tf.function(jit_compile=compiled)
    def train(grads: Any) -> None:
        for number in tf.range(4):
            optimizer.apply([grads[number]], [weight])

    train(tf.constant([[8.0], [INF], [8.0], [16.0]]))
    # Scales 8, 16, 8, 16: steps of 1, nothing, 1 and 1.
    assert weight.numpy() == [-3.0]
    assert optimizer.loss_scale_state() == amp.LossScaleState(32.0, 3, 1, 0, 2, 3)
