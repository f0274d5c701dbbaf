"""Protected variables that something besides a step has changed."""

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
    bits,
    constant,
    fit,
    scaled,
    variable,
)


def model_of(optimizer: Any, **how: Any) -> keras.Model:
    norm = keras.layers.BatchNormalization(momentum=0.5)
    model = keras.Sequential([keras.Input((2,)), norm, keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **how)
    return model


def change(model: keras.Model) -> list[bytes]:
    for one in model.non_trainable_variables:
        one.assign(one + 7)
    return bits(*model.non_trainable_variables)


@pytest.mark.parametrize("run_eagerly", [True, False])
def test_protecting_again_takes_the_present_values(run_eagerly: bool) -> None:
    optimizer = scaled()
    model = model_of(optimizer, run_eagerly=run_eagerly)
    optimizer.protect(model)
    fit(model, GOOD)
    changed = change(model)
    optimizer.protect(model)
    fit(model, BAD)
    assert bits(*model.non_trainable_variables) == changed


def test_protection_after_the_first_fit_takes_effect() -> None:
    optimizer = scaled()
    model = model_of(optimizer)
    with pytest.warns(amp.errors.LossScaleWarning):
        fit(model, GOOD)
    optimizer.protect(model)  # as the warning says
    before = bits(model)
    fit(model, BAD)
    assert bits(model) == before


def test_protecting_more_after_a_function_was_traced_is_told_to_come_too_late() -> None:
    optimizer, weight = scaled(), variable(1.0)
    optimizer.build([weight])
    first, second = tf.Variable(1.0), tf.Variable(1.0)
    optimizer.protect(first)

    def step(grad: Any) -> None:
        first.assign_add(1.0), second.assign_add(1.0)
        optimizer.apply([grad], [weight])

    tf.function(step)(constant(1.0))
    with pytest.warns(amp.errors.LossScaleWarning, match=r"^A step was traced before this call"):
        optimizer.protect(second)
    tf.function(step)(constant(INF))  # traced again, as the warning says
    assert (first.numpy(), second.numpy()) == (2.0, 2.0)


@pytest.mark.parametrize("is_warm", [False, True])
def test_loaded_weights_are_not_undone_by_a_skip(tmp_path: Any, is_warm: bool) -> None:
    donor = model_of(scaled())
    loaded = change(donor)
    donor.save_weights(tmp_path / "donor.weights.h5")
    model = model_of(scaled())
    if is_warm:
        fit(model, GOOD, callbacks=[amp.AmpMonitor(verbose=0)])
    model.load_weights(tmp_path / "donor.weights.h5")
    fit(model, BAD, callbacks=[amp.AmpMonitor(verbose=0)])
    assert bits(*model.non_trainable_variables) == loaded


def test_weights_loaded_between_protection_and_the_first_step_are_kept(tmp_path: Any) -> None:
    donor = model_of(scaled())
    loaded = change(donor)
    donor.save_weights(tmp_path / "donor.weights.h5")
    optimizer = scaled()
    model = model_of(optimizer)
    optimizer.protect(model)
    model.load_weights(tmp_path / "donor.weights.h5")
    fit(model, BAD)
    assert bits(*model.non_trainable_variables) == loaded


def test_an_annealed_variable_is_not_undone_by_a_skip() -> None:
    class Annealed(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.factor = self.add_weight(shape=(), initializer="ones", trainable=False)

        def call(self, inputs: Any) -> Any:
            return inputs * self.factor

    optimizer, annealed = scaled(), Annealed()
    model = keras.Sequential([keras.Input((2,)), annealed, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")

    def anneal(epoch: int, logs: Any = None) -> None:
        annealed.factor.assign(0.5**epoch)

    optimizer.protect(model)
    fit(model, BAD, epochs=3, callbacks=[keras.callbacks.LambdaCallback(on_epoch_begin=anneal)])
    assert float(annealed.factor.numpy()) == 0.25


def test_an_adapted_normalization_is_not_undone_by_a_skip() -> None:
    optimizer, normalization = scaled(), keras.layers.Normalization()
    normalization.build((None, 2))
    model = keras.Sequential([keras.Input((2,)), normalization, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    optimizer.protect(model)
    normalization.adapt(GOOD)
    adapted = bits(normalization)
    fit(model, BAD)
    assert bits(normalization) == adapted
    assert np.isfinite(model.predict(GOOD, verbose=0)).all()


class Queueing(keras.Model):
    """Puts each batch into a queue once the optimizer is done, as contrastive learning does."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dense = keras.layers.BatchNormalization(), keras.layers.Dense(1)
        self.queue = self.add_weight(shape=(3,), initializer="zeros", trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.dense(self.norm(inputs, training=training))

    def train_step(self, data: Any) -> dict[str, Any]:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(inputs, training=True) - labels) ** 2)
            scaled_loss = self.optimizer.scale_loss(loss)
        grads = tape.gradient(scaled_loss, self.trainable_variables)
        self.optimizer.apply(grads, self.trainable_variables)
        self.queue.assign(tf.concat([inputs[0, :1], self.queue[:2]], 0))
        return {"loss": loss}


def test_what_a_train_step_updates_after_the_optimizer_is_not_undone_by_a_skip() -> None:
    model = Queueing()
    model(GOOD)
    model.compile(scaled())
    batches = [np.full((4, 2), value, np.float32) for value in (1, 2, 3)]
    bad = np.where(np.arange(8).reshape(4, 2) == 5, INF, 4.0).astype(np.float32)
    fit(model, *batches, bad, callbacks=[amp.AmpMonitor(verbose=0)])
    assert model.queue.numpy().tolist() == [4.0, 3.0, 2.0]
    assert np.isfinite(model.norm.moving_mean.numpy()).all()
