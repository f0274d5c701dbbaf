"""Several optimizers and several losses in one loop."""

from __future__ import annotations

import gc
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.precision.loss_scaling.helpers import (
    INF,
    NAN,
    bits,
    constant,
    in_each_mode,
    in_mode,
    scaled,
    variable,
)

layers = keras.layers
NOISE = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
REAL = NOISE[::-1] * 2 + 1


class Gan:
    """A generator and a discriminator with statistics that both steps update."""

    def __init__(self) -> None:
        norm = layers.BatchNormalization(momentum=0.5)
        self.generator = keras.Sequential([keras.Input((2,)), layers.Dense(2), norm])
        norm = layers.BatchNormalization(momentum=0.5)
        chain = [keras.Input((2,)), layers.Dense(3), norm, layers.Dense(1)]
        self.discriminator = keras.Sequential(chain)
        self.g_optimizer = scaled(keras.optimizers.Adam(0.1), hysteresis=9)
        self.d_optimizer = scaled(keras.optimizers.Adam(0.1), hysteresis=9)
        self.g_optimizer.build(self.generator.trainable_variables)
        self.d_optimizer.build(self.discriminator.trainable_variables)
        self.g_optimizer.protect(self.generator, self.discriminator)
        self.d_optimizer.protect(self.generator, self.discriminator)

    def bits(self) -> list[bytes]:
        return bits(self.generator, self.discriminator, self.g_optimizer, self.d_optimizer)

    def d_step(self, factor: Any) -> None:
        with tf.GradientTape() as tape:
            fake = self.generator(NOISE * factor, training=True)
            real = self.discriminator(REAL, training=True)
            loss = tf.reduce_mean(self.discriminator(fake, training=True)) - tf.reduce_mean(real**2)
            loss = self.d_optimizer.scale_loss(loss)
        variables = self.discriminator.trainable_variables
        self.d_optimizer.apply(tape.gradient(loss, variables), variables)

    def g_step(self, factor: Any) -> None:
        with tf.GradientTape() as tape:
            fake = self.generator(NOISE * factor, training=True)
            loss = -tf.reduce_mean(self.discriminator(fake, training=True) ** 2)
            loss = self.g_optimizer.scale_loss(loss)
        variables = self.generator.trainable_variables
        self.g_optimizer.apply(tape.gradient(loss, variables), variables)


def run(mode: str, steps: str) -> list[list[bytes]]:
    """The state after each step: `d` and `g` are good ones, `D` and `G` bad ones."""
    keras.utils.set_random_seed(5)
    gan = Gan()
    functions = {"d": in_mode(gan.d_step, mode), "g": in_mode(gan.g_step, mode)}
    seen = [gan.bits()]
    for name in steps:
        functions[name.lower()](tf.constant(INF if name.isupper() else 1.0))
        seen.append(gan.bits())
    return seen


@in_each_mode
def test_a_bad_step_of_either_gives_back_the_state_before_it(mode: str) -> None:
    steps = "DdDGgGGdgDg"
    seen = run(mode, steps)
    for number, name in enumerate(steps):
        assert (seen[number + 1] == seen[number]) is name.isupper(), number


def test_bad_steps_of_either_leave_no_trace() -> None:
    assert run("graph", "DdGgDGdGg")[-1] == run("graph", "dgdg")[-1]


@pytest.mark.parametrize("bad", ["d", "g"])
def test_two_losses_of_one_forward_pass_are_skipped_one_by_one(bad: str) -> None:
    gan = Gan()
    before = gan.bits()

    @tf.function
    def both(d_factor: Any, g_factor: Any) -> None:
        with tf.GradientTape(persistent=True) as tape:
            fake = gan.discriminator(gan.generator(NOISE, training=True), training=True)
            d_loss = gan.d_optimizer.scale_loss(tf.reduce_mean(fake) * d_factor)
            g_loss = gan.g_optimizer.scale_loss(-tf.reduce_mean(fake) * g_factor)
        for optimizer, loss, model in (
            (gan.d_optimizer, d_loss, gan.discriminator),
            (gan.g_optimizer, g_loss, gan.generator),
        ):
            grads = tape.gradient(loss, model.trainable_variables)
            optimizer.apply(grads, model.trainable_variables)

    both(*(tf.constant(NAN if bad == name else 1.0) for name in "dg"))
    skipped = {"d": gan.d_optimizer, "g": gan.g_optimizer}
    assert {name: one.loss_scale_state().skipped_steps for name, one in skipped.items()} == {
        "d": int(bad == "d"),
        "g": int(bad == "g"),
    }
    assert gan.bits() != before
    everything = [*gan.generator.variables, *gan.discriminator.variables]
    assert all(np.isfinite(one.numpy()).all() for one in everything)


def test_a_second_optimizer_starts_with_the_values_of_the_first() -> None:
    model = keras.Sequential([keras.Input((2,)), layers.BatchNormalization(momentum=0.5)])
    first, second, weight = scaled(), scaled(), variable(1.0)
    first.protect(model)
    model(REAL, training=True)
    first.apply([constant(1.0)], [weight])
    after_first = bits(model)
    second.protect(model)
    model(NOISE, training=True)
    second.apply([constant(INF)], [weight])
    assert bits(model) == after_first
    model(NOISE, training=True)
    first.apply([constant(INF)], [weight])
    assert bits(model) == after_first


def test_protection_outlives_the_other_optimizer() -> None:
    model = keras.Sequential([keras.Input((2,)), layers.BatchNormalization(momentum=0.5)])
    first, second, weight = scaled(), scaled(), variable(1.0)
    first.protect(model), second.protect(model)
    model(REAL, training=True)
    first.apply([constant(1.0)], [weight])
    before = bits(model)
    del first
    gc.collect()
    model(REAL * INF, training=True)
    second.apply([constant(INF)], [weight])
    assert bits(model) == before


@in_each_mode
def test_several_losses_can_share_one_optimizer(mode: str) -> None:
    optimizer, weight = scaled(initial_scale=8, hysteresis=9), variable(0.0)
    optimizer.build([weight])

    def step(first: Any, second: Any) -> None:
        with tf.GradientTape(persistent=True) as tape:
            one = optimizer.scale_loss(tf.reduce_sum(weight.value * first))
            two = optimizer.scale_loss(tf.reduce_sum(weight.value * second))
        one, two = (tape.gradient(loss, weight.value) for loss in (one, two))
        optimizer.apply([one + two], [weight])

    step = in_mode(step, mode)
    for first, second in ((1.0, 2.0), (1.0, NAN), (INF, -INF), (3.0, 4.0)):
        step(tf.constant(first), tf.constant(second))
    assert weight.numpy() == [-10.0]
    assert optimizer.loss_scale_state().skipped_steps == 2


def test_each_optimizer_has_a_scale_of_its_own() -> None:
    optimizers, weight = [scaled(initial_scale=8), scaled(initial_scale=8)], variable(1.0)
    for optimizer, grad in zip(optimizers, (INF, 1.0), strict=True):
        optimizer.apply([constant(grad)], [weight])
    assert [one.loss_scale_state().scale for one in optimizers] == [4.0, 8.0]
