"""What `.keras` and `.weights.h5` files keep, and under which policy they load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import BAD, GOOD, bits, fit, scaled

SETTINGS = {
    "initial_scale": 1024.0,
    "growth_factor": 4.0,
    "backoff_factor": 0.25,
    "growth_interval": 3,
    "min_scale": 2.0,
    "max_scale": 65536.0,
    "hysteresis": 2,
    "max_consecutive_skips": 7,
}


def small_model() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])


def trained(optimizer: Any, *batches: np.ndarray) -> keras.Model:
    model = small_model()
    model.compile(optimizer, "mse", auto_scale_loss=False, loss_weights=2.0**-8)
    fit(model, *batches)
    return model


def ours(**settings: Any) -> amp.LossScaleOptimizer:
    return scaled(keras.optimizers.Adam(0.01, global_clipnorm=1.0), **{**SETTINGS, **settings})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "model.keras")


def test_a_keras_file_keeps_settings_scale_counters_and_slots(path: str) -> None:
    model = trained(ours(), GOOD, BAD, BAD, GOOD)
    model.save(path)
    loaded = keras.models.load_model(path)
    assert type(loaded.optimizer) is amp.LossScaleOptimizer
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    assert loaded.optimizer.loss_scale_state() == amp.LossScaleState(256.0, 2, 2, 0, 3)
    assert bits(loaded, loaded.optimizer) == bits(model, model.optimizer)
    assert bits(*loaded.optimizer.variables) == bits(*model.optimizer.variables)


def test_a_loaded_model_goes_on_as_the_saved_one(path: str) -> None:
    model = trained(ours(), GOOD, BAD)
    model.save(path)
    loaded = keras.models.load_model(path)
    batches = (GOOD * 2, BAD, GOOD, GOOD)
    assert bits(*(fit(one, *batches) and one for one in (loaded,))) == bits(
        *(fit(one, *batches) and one for one in (model,))
    )
    assert loaded.optimizer.loss_scale_state() == model.optimizer.loss_scale_state()


@pytest.mark.parametrize(
    ("saved_under", "loaded_under"),
    [
        ("mixed_float16", "float32"),
        ("mixed_float16", "mixed_bfloat16"),
        ("mixed_float16", "mixed_float16"),
        ("float16", "float32"),
        ("float32", "mixed_float16"),
    ],
)
def test_another_policy_changes_nothing_about_what_is_loaded(  # L13
    path: str, saved_under: str, loaded_under: str
) -> None:
    keras.config.set_dtype_policy(saved_under)
    model = trained(ours(hysteresis=1), GOOD, BAD, GOOD)
    model.save(path)
    keras.config.set_dtype_policy(loaded_under)
    loaded = keras.models.load_model(path)
    assert type(loaded.optimizer) is amp.LossScaleOptimizer
    assert loaded.optimizer.loss_scale_state() == model.optimizer.loss_scale_state()
    assert bits(loaded, loaded.optimizer) == bits(model, model.optimizer)
    fit(loaded, GOOD)
    assert int(loaded.optimizer.iterations.numpy()) == 3


def test_saving_what_was_loaded_gives_the_same_config_again(path: str) -> None:
    model = trained(ours(), GOOD)
    model.save(path)
    once = keras.models.load_model(path)
    once.save(path)
    twice = keras.models.load_model(path)
    assert (
        twice.optimizer.get_config() == once.optimizer.get_config() == model.optimizer.get_config()
    )
    assert twice.get_compile_config() == once.get_compile_config() == model.get_compile_config()


@pytest.mark.parametrize("settings", [{}, SETTINGS, {"scaling": "static", "initial_scale": 0.5}])
def test_serialized_optimizers_come_back_with_their_settings(settings: dict[str, Any]) -> None:
    optimizer = amp.LossScaleOptimizer(
        keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 10), momentum=0.9),
        name="mine",
        **settings,
    )
    config = keras.optimizers.serialize(optimizer)
    twin = keras.optimizers.deserialize(config)
    assert type(twin) is amp.LossScaleOptimizer
    assert twin.get_config() == optimizer.get_config()
    assert config["registered_name"] == "tf_amp_kit>LossScaleOptimizer"


def test_reading_a_config_leaves_it_as_it_is() -> None:
    config = ours().get_config()
    first = amp.LossScaleOptimizer.from_config(config).get_config()
    assert amp.LossScaleOptimizer.from_config(config).get_config() == first


def test_an_optimizer_of_the_users_own_can_be_inside(path: str) -> None:
    class Mine(keras.optimizers.SGD):
        pass

    config = keras.optimizers.serialize(amp.LossScaleOptimizer(Mine(0.5)))
    twin = keras.optimizers.deserialize(config, custom_objects={"Mine": Mine})
    assert type(twin.inner_optimizer) is Mine
    model = trained(scaled(Mine(0.5)), GOOD)
    model.save(path)
    loaded = keras.models.load_model(path, custom_objects={"Mine": Mine})
    assert type(loaded.optimizer.inner_optimizer) is Mine


@pytest.mark.parametrize("is_built", [False, True])
def test_a_weights_file_keeps_the_state(tmp_path: Path, is_built: bool) -> None:
    path = tmp_path / "model.weights.h5"
    model = trained(ours(), GOOD, BAD, BAD, GOOD)
    model.save_weights(path)
    other = small_model()
    other.compile(ours(), "mse", auto_scale_loss=False)
    if is_built:
        other.optimizer.build(other.trainable_variables)
        other.load_weights(path)
        assert other.optimizer.loss_scale_state() == model.optimizer.loss_scale_state()
        assert bits(other, other.optimizer) == bits(model, model.optimizer)
    else:
        # Keras's optimizers load nothing before they are built, and say so.
        with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
            other.load_weights(path)
        assert other.optimizer.loss_scale_state() == amp.LossScaleState(1024.0)


def test_the_next_fit_goes_on_from_loaded_weights(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    model = trained(ours(), GOOD, BAD, BAD)
    model.save_weights(path)
    before = bits(model, model.optimizer)
    fit(model, GOOD, GOOD, GOOD)
    model.load_weights(path)
    assert bits(model, model.optimizer) == before
    assert model.optimizer.loss_scale_state() == amp.LossScaleState(256.0, 1, 2, 2, 3)
    fit(model, BAD)
    assert bits(model, model.optimizer) == before
    assert model.optimizer.loss_scale_state() == amp.LossScaleState(64.0, 1, 3, 3, 4)


def test_a_model_without_a_build_before_saving_loads(path: str) -> None:
    model = small_model()
    model.compile(ours(), "mse")
    model.save(path)
    # Keras builds an optimizer while it loads, and then misses what it was built for.
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        loaded = keras.models.load_model(path)
    assert loaded.optimizer.loss_scale_state() == amp.LossScaleState(1024.0)


@pytest.mark.parametrize("plain", [keras.optimizers.Adam, keras.optimizers.SGD])
def test_a_plain_optimizers_state_is_told_not_to_load(tmp_path: Path, plain: Any) -> None:
    # Adam's four and SGD's momentum of six weights have numbers that have been
    # mistaken for those of Keras's wrapper around the other one.
    path = tmp_path / "model.weights.h5"
    model = trained(plain(0.01), GOOD)
    model.save_weights(path)
    other = small_model()
    other.compile(scaled(keras.optimizers.SGD(0.01, momentum=0.9)), "mse")
    other.optimizer.build(other.trainable_variables)
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        other.load_weights(path)
    assert bits(other) == bits(model)
    assert other.optimizer.loss_scale_state() == amp.LossScaleState(2.0**15)
    assert int(other.optimizer.iterations.numpy()) == 0


def test_a_file_loads_without_compiling_too(path: str) -> None:
    model = trained(ours(), GOOD)
    model.save(path)
    loaded = keras.models.load_model(path, compile=False)
    assert bits(loaded) == bits(model)
