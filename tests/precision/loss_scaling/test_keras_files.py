"""What Keras's own wrapper saved is loaded: scale, count and slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import GOOD, INF, LABELS, NAN, bits, fit, scaled
from tests.precision.loss_scaling.test_files import small_model

KerasWrapper = keras.optimizers.LossScaleOptimizer


def of_keras(scale: float = 4096.0, **settings: Any) -> keras.Model:
    """A model that took three steps with Keras's wrapper, whose scale is then as given."""
    model = small_model()
    wrapper = KerasWrapper(keras.optimizers.Adam(0.01), **settings)
    model.compile(wrapper, "mse", loss_weights=2.0**-8)
    fit(model, GOOD, GOOD, GOOD)
    wrapper.dynamic_scale.assign(scale)
    return model


def to_load_into(**settings: Any) -> keras.Model:
    model = small_model()
    model.compile(scaled(keras.optimizers.Adam(0.01), **settings), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


@pytest.mark.parametrize(
    ("scale", "expected"),
    [(4096.0, 4096.0), (0.0, 1.0), (INF, 2.0**24), (NAN, 1.0), (2.0**30, 2.0**24), (0.5, 1.0)],
)
def test_a_weights_file_of_keras_loads_with_its_scale_in_bounds(
    tmp_path: Path, scale: float, expected: float
) -> None:
    theirs, ours = of_keras(scale), to_load_into()
    theirs.save_weights(tmp_path / "k.weights.h5")
    ours.load_weights(tmp_path / "k.weights.h5")
    assert bits(ours, ours.optimizer) == bits(theirs, *theirs.optimizer.inner_optimizer.variables)
    assert ours.optimizer.loss_scale_state() == amp.LossScaleState(expected)
    assert int(ours.optimizer.step_counter.numpy()) == 3


@pytest.mark.parametrize("scale", [4096.0, 0.0, INF, NAN])
def test_a_checkpoint_of_keras_loads_with_its_scale_in_bounds(tmp_path: Path, scale: float) -> None:
    theirs, ours = of_keras(scale), to_load_into()
    saved = tf.train.Checkpoint(model=theirs, optimizer=theirs.optimizer)
    where = saved.save(str(tmp_path / "k"))
    tf.train.Checkpoint(model=ours, optimizer=ours.optimizer).restore(where).expect_partial()
    assert bits(ours, ours.optimizer) == bits(theirs, *theirs.optimizer.inner_optimizer.variables)
    expected = {4096.0: 4096.0, INF: 2.0**24}.get(scale, 1.0)
    assert ours.optimizer.loss_scale_state().scale == expected
    fit(ours, GOOD)
    assert ours.optimizer.loss_scale_state() == amp.LossScaleState(expected, applied_steps=1)
    assert np.isfinite(ours.get_weights()[0]).all()


@pytest.mark.parametrize("scale", [4096.0, 0.0, INF])
def test_a_model_file_of_keras_can_go_on_with_ours(tmp_path: Path, scale: float) -> None:
    theirs = of_keras(scale)
    theirs.save(tmp_path / "k.keras")
    loaded = keras.models.load_model(tmp_path / "k.keras")
    optimizer = amp.make_loss_scale_optimizer(loaded.optimizer)
    loaded.compile(optimizer, "mse")
    assert bits(loaded, optimizer) == bits(theirs, *theirs.optimizer.inner_optimizer.variables)
    assert optimizer.loss_scale_state().scale == {4096.0: 4096.0, INF: 2.0**24}.get(scale, 1.0)
    fit(loaded, GOOD)
    assert int(optimizer.iterations.numpy()) == 4


def test_a_mixed_float16_file_of_keras_can_go_on_with_ours(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    theirs = small_model()
    theirs.compile("adam", "mse", loss_weights=2.0**-8)  # which wraps by itself
    fit(theirs, GOOD)
    theirs.save_weights(tmp_path / "k.weights.h5")
    ours = to_load_into()
    ours.load_weights(tmp_path / "k.weights.h5")
    assert bits(ours, ours.optimizer) == bits(theirs, *theirs.optimizer.inner_optimizer.variables)


def test_loading_forgets_what_was_counted_before(tmp_path: Path) -> None:
    ours = to_load_into(max_consecutive_skips=9)
    fit(ours, GOOD, GOOD * INF, GOOD * INF)
    of_keras().save_weights(tmp_path / "k.weights.h5")
    ours.load_weights(tmp_path / "k.weights.h5")
    assert ours.optimizer.loss_scale_state() == amp.LossScaleState(4096.0)


def test_a_wrapper_around_another_optimizer_is_told_not_to_fit(tmp_path: Path) -> None:
    of_keras().save_weights(tmp_path / "k.weights.h5")
    ours = small_model()
    ours.compile(scaled(keras.optimizers.SGD(0.01)), "mse")
    ours.optimizer.build(ours.trainable_variables)
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        ours.load_weights(tmp_path / "k.weights.h5")
    assert ours.optimizer.loss_scale_state() == amp.LossScaleState(2.0**15)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"initial_scale": 2.0**15, "growth_interval": 2000}),
        (
            {"initial_scale": 0.25, "dynamic_growth_steps": 7},
            {"initial_scale": 0.25, "min_scale": 0.25, "growth_interval": 7},
        ),
        ({"initial_scale": 2.0**30}, {"initial_scale": 2.0**30, "max_scale": 2.0**30}),
    ],
)
def test_a_config_of_keras_becomes_one_of_ours(
    settings: dict[str, float], expected: dict[str, float]
) -> None:
    theirs = KerasWrapper(keras.optimizers.Adam(0.5), name="old", **settings)
    ours = amp.LossScaleOptimizer.from_config(theirs.get_config()).get_config()
    defaults = amp.LossScaleOptimizer(keras.optimizers.SGD()).get_config()
    inner = theirs.get_config()["inner_optimizer"]
    assert ours == {**defaults, **expected, "name": "old", "inner_optimizer": inner}


def test_a_config_of_an_older_keras_with_idle_arguments_loads() -> None:
    idle = {"weight_decay": None, "clipnorm": None, "use_ema": False, "ema_momentum": 0.99}
    config = KerasWrapper(keras.optimizers.SGD(0.5)).get_config() | idle
    ours = amp.LossScaleOptimizer.from_config(config)
    assert float(ours.learning_rate.numpy()) == 0.5


def test_what_ours_saved_before_a_step_is_not_taken_for_keras_s(tmp_path: Path) -> None:
    ours, other = to_load_into(), to_load_into()
    ours.train_on_batch(GOOD * INF, LABELS)
    ours.save_weights(tmp_path / "o.weights.h5")
    other.load_weights(tmp_path / "o.weights.h5")
    assert other.optimizer.loss_scale_state() == amp.LossScaleState(2.0**14, 0, 1, 1, 1)
