"""Where nothing overflows and no bound is reached, Keras's own optimizer, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import MODES, bits

NUM_STEPS = 50
GROWTH_INTERVAL = 20

INNER: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "adamw_global": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.1),
    "adamw_each": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=0.05),
    "adamw_value": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1, clipvalue=0.01),
    "accumulating": lambda: keras.optimizers.SGD(0.05, 0.9, gradient_accumulation_steps=4),
    "averaging": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=7),
}


def keras_wrapper(inner: Any) -> Any:
    return keras.optimizers.LossScaleOptimizer(inner, dynamic_growth_steps=GROWTH_INTERVAL)


def our_wrapper(inner: Any) -> Any:
    return amp.LossScaleOptimizer(inner, growth_interval=GROWTH_INTERVAL)


def trained(optimizer: Any, mode: str) -> tuple[list[bytes], list[bytes], float, int]:
    """Weights, the inner optimizer's slots, the scale and its counter after all steps."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy("mixed_float16")
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1, dtype="float32")]
    model = keras.Sequential([keras.Input((4,)), *layers])
    features = np.random.default_rng(3).normal(size=(NUM_STEPS * 8, 4)).astype(np.float32)
    # So small that no gradient overflows float16 at the scales to come.
    labels = features.sum(axis=1, keepdims=True)
    how = {"run_eagerly": mode == "eager", "jit_compile": mode == "jit"}
    model.compile(optimizer, "mse", loss_weights=2.0**-7, auto_scale_loss=False, **how)
    model.fit(features, labels, batch_size=8, epochs=1, verbose=0)
    return (
        bits(*model.variables),
        bits(*optimizer.inner_optimizer.variables),
        float(optimizer.dynamic_scale.numpy()),
        int(optimizer.step_counter.numpy()),
    )


def check_same(inner: str, mode: str) -> None:
    ours = trained(our_wrapper(INNER[inner]()), mode)
    assert ours == trained(keras_wrapper(INNER[inner]()), mode)
    # Raised at the 20th and the 40th step: the scale does move while they agree.
    assert ours[2:] == (2.0**17, NUM_STEPS - 2 * GROWTH_INTERVAL)


@pytest.mark.parametrize("inner", ["sgd", "adam", "adamw_global", "accumulating"])
def test_fifty_steps_end_with_the_same_weights_and_slots(inner: str) -> None:
    check_same(inner, "graph")


def test_fifty_eager_steps_end_with_the_same_weights_and_slots() -> None:
    check_same("adamw_global", "eager")


def test_fifty_steps_of_xla_end_with_the_same_weights_and_slots() -> None:
    check_same("adamw_global", "jit")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inner", INNER)
def test_fifty_steps_end_alike_in_every_mode(inner: str, mode: str) -> None:
    check_same(inner, mode)
