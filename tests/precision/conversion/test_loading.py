"""Files opened under another policy than they were made with."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.conversion.helpers import (
    bits,
    compute_dtypes,
    optimizer_bits,
    policies,
    prediction,
)
from tests.precision.conversion.models import (
    BUILDERS,
    Builder,
    Subclassed,
    WithDtype,
    WithoutDtype,
    built,
    composite_without_dtype,
    data_for,
    functional,
    shared_layer,
    trained,
    with_lambda,
)
from tests.precision.conversion.test_policies import mapped_attention
from tf_amp_kit.errors import ConversionWarning, LoadError, PinError, PrecisionError

CLASSES = {cls.__name__: cls for cls in (Subclassed, WithDtype, WithoutDtype)}
KerasWrapper = keras.optimizers.LossScaleOptimizer


def saved(model: keras.Model, folder: Path, name: str = "model.keras") -> Path:
    model.save(folder / name)
    return folder / name


def states(model: keras.Model) -> Any:
    return bits([variable.numpy() for variable in model.optimizer.variables])


def next_weights(model: keras.Model) -> Any:
    model.train_on_batch(*data_for(model))
    return bits(model.get_weights())


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_float16_file_keeps_scaling_slots_and_policies(tmp_path: Path, policy: str) -> None:
    model = trained(functional, "mixed_float16")
    path = saved(model, tmp_path)
    keras.config.set_dtype_policy(policy)
    loaded = amp.load_model(path)
    assert type(loaded.optimizer) is KerasWrapper
    assert states(loaded) == states(model)
    assert policies(loaded) == policies(model)
    assert keras.config.dtype_policy().name == policy
    assert next_weights(loaded) == next_weights(model)


def test_keras_itself_loses_them(tmp_path: Path) -> None:
    model = trained(functional, "mixed_float16")
    with pytest.warns(UserWarning, match="Skipping variable loading for optimizer"):
        loaded = keras.saving.load_model(saved(model, tmp_path))
    assert type(loaded.optimizer) is keras.optimizers.Adam


@pytest.mark.parametrize("builder", [one for one in BUILDERS if one is not with_lambda])
def test_every_kind_of_model_is_as_it_was_saved(tmp_path: Path, builder: Builder) -> None:
    model = built(builder, "mixed_bfloat16")
    loaded = amp.load_model(saved(model, tmp_path), custom_objects=CLASSES)
    assert policies(loaded) == policies(model)
    inputs, _ = data_for(model)
    assert bits(prediction(loaded, inputs)) == bits(prediction(model, inputs))


@pytest.mark.parametrize("builder", [composite_without_dtype, shared_layer])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_file_is_converted_with_its_slots(
    tmp_path: Path, builder: Builder, precision: str
) -> None:
    model = trained(builder, "mixed_float16")
    path = saved(model, tmp_path)
    loaded = amp.load_model(path, precision, custom_objects=CLASSES)
    assert policies(loaded) == policies(amp.convert_model(model, precision))
    assert type(loaded.optimizer) is keras.optimizers.Adam
    assert optimizer_bits(loaded.optimizer) == optimizer_bits(model.optimizer)
    assert bits(loaded.get_weights()) == bits(model.get_weights())


def test_a_model_that_refused_scaling_keeps_its_slots(tmp_path: Path) -> None:
    model = trained(functional, "mixed_float16", auto_scale_loss=False)
    loaded = amp.load_model(saved(model, tmp_path))
    assert type(loaded.optimizer) is keras.optimizers.Adam
    assert states(loaded) == states(model)


def test_half_layers_in_a_float32_program_keep_their_slots(tmp_path: Path) -> None:
    def builder() -> keras.Model:
        inputs = keras.Input((4,))
        return keras.Model(inputs, layers.Dense(2, dtype="mixed_float16")(inputs))

    model = trained(builder, "float32")
    loaded = amp.load_model(saved(model, tmp_path))
    assert states(loaded) == states(model)


def test_scaling_tells_the_policy_of_a_file_that_is_mostly_pinned(tmp_path: Path) -> None:
    def builder() -> keras.Model:
        inputs = keras.Input((4,))
        x = layers.Dense(3, dtype="float32")(layers.Dense(3, dtype="float32")(inputs))
        return keras.Model(inputs, layers.Dense(2)(x))

    model = trained(builder, "mixed_float16")
    loaded = amp.load_model(saved(model, tmp_path))
    assert states(loaded) == states(model)
    assert policies(loaded) == policies(model)


def test_our_wrapper_keeps_its_counts(tmp_path: Path) -> None:
    optimizer = amp.make_loss_scale_optimizer("adam", precision="fp16")
    model = trained(functional, "mixed_float16", optimizer=optimizer)
    loaded = amp.load_model(saved(model, tmp_path))
    assert loaded.optimizer.loss_scale_state() == optimizer.loss_scale_state()
    assert states(loaded) == states(model)


def test_a_policy_map_in_a_file_keeps_its_pins(tmp_path: Path) -> None:
    path = saved(built(mapped_attention, "mixed_float16"), tmp_path)
    assert compute_dtypes(amp.load_model(path))["attend/output_dense"] == "float32"
    assert compute_dtypes(amp.load_model(path, "bf16"))["attend/output_dense"] == "float32"
    assert set(policies(amp.load_model(path, "fp32")).values()) == {"float32"}


def test_a_file_opens_uncompiled_if_told_to(tmp_path: Path) -> None:
    path = saved(trained(functional, "mixed_float16"), tmp_path)
    assert not amp.load_model(path, compile=False).compiled


@pytest.mark.parametrize("arguments", [{}, {"auto_scale_loss": False}])
def test_an_unpacked_file_opens_too(tmp_path: Path, arguments: dict[str, Any]) -> None:
    model = trained(functional, "mixed_float16", **arguments)
    with zipfile.ZipFile(saved(model, tmp_path)) as archive:
        archive.extractall(tmp_path / "folder")
    assert states(amp.load_model(tmp_path / "folder")) == states(model)


@pytest.mark.filterwarnings("ignore:.*save_model:UserWarning")
def test_an_h5_file_opens_and_tells_that_keras_loads_no_slots(tmp_path: Path) -> None:
    model = trained(functional, "mixed_float16", loss=keras.losses.MeanSquaredError())
    path = saved(model, tmp_path, "model.h5")
    with pytest.warns(ConversionWarning, match="no optimizer state from this .h5 file"):
        loaded = amp.load_model(path)
    assert policies(loaded) == policies(model)
    assert type(loaded.optimizer) is KerasWrapper
    inputs, _ = data_for(model)
    assert bits(prediction(loaded, inputs)) == bits(prediction(model, inputs))


@pytest.mark.filterwarnings("ignore:.*save_model:UserWarning")
@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_training_goes_on_with_a_fresh_optimizer_after_an_h5_file(
    tmp_path: Path, policy: str
) -> None:
    model = trained(functional, policy, loss=keras.losses.MeanSquaredError())
    path = saved(model, tmp_path, "model.h5")
    message = "training goes on with fresh slots and the step count 0"
    with pytest.warns(ConversionWarning, match=message):
        loaded = amp.load_model(path)
    assert int(loaded.optimizer.iterations.numpy()) == 0
    loaded.train_on_batch(*data_for(model))
    assert int(loaded.optimizer.iterations.numpy()) == 1
    assert bits(loaded.get_weights()) != bits(model.get_weights())


def test_pins_are_applied_to_the_converted_model(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    pins = amp.pin_float32(functional(), "dense")
    keras.config.set_dtype_policy("float32")
    loaded = amp.load_model(saved(functional(), tmp_path), "bf16", pins=pins)
    assert [layer.compute_dtype for layer in loaded.layers[1:]] == ["float32", "bfloat16"]


def test_what_are_no_pins_is_refused_before_the_file_is_read() -> None:
    with pytest.raises(PinError, match=re.escape("Unknown pins. Expected what `pin_float32`")):
        amp.load_model("there is no such file", pins=3)


def test_an_unknown_precision_is_refused_before_the_file_is_read() -> None:
    with pytest.raises(PrecisionError, match="Received: precision='fp7'"):
        amp.load_model("there is no such file", "fp7")


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "folder"])
def test_a_missing_file_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoadError, match=r"There is no such file\. Expected a \.keras file"):
        amp.load_model(tmp_path / name)


def not_a_file_of_a_model(folder: Path, kind: str) -> Path:
    path = folder / {"text": "x.keras", "weights": "x.weights.h5", "zip": "x.keras"}.get(kind, "x")
    if kind == "text":
        path.write_text("no archive")
    elif kind == "weights":
        functional().save_weights(path)
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("other.json", "{}")
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["text", "weights", "zip", "empty folder"])
def test_a_file_without_a_model_is_told(tmp_path: Path, kind: str) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    with pytest.raises(LoadError, match=r"There is no model in this file.*model\.load_weights"):
        amp.load_model(not_a_file_of_a_model(tmp_path, kind))
    assert keras.config.dtype_policy().name == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ("[]", "its config is no object"),
        ("null", "its config is no object"),
        ('"mixed_float16"', "its config is no object"),
        ("{}", "its 'config' is no object"),
        ('{"class_name": "X", "config": null}', "its 'config' is no object"),
        ('{"config": {}, "compile_config": 1}', "its 'compile_config' is no object"),
    ],
)
def test_a_damaged_config_is_told(tmp_path: Path, config: str, fault: str) -> None:
    path = tmp_path / "x.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", config)
    with pytest.raises(LoadError, match=f"There is no model in this file: {fault}"):
        amp.load_model(path)


def test_what_keras_says_of_an_unknown_class_comes_through(tmp_path: Path) -> None:
    path = saved(built(composite_without_dtype, "mixed_float16"), tmp_path)
    with pytest.raises(TypeError, match="Could not locate class 'WithoutDtype'"):
        amp.load_model(path)
    assert keras.config.dtype_policy().name == "float32"


def test_code_in_a_file_is_refused_unless_it_is_trusted(tmp_path: Path) -> None:
    doubled = layers.Lambda(lambda x: x * 2, output_shape=(4,))
    path = saved(keras.Sequential([keras.Input((4,)), doubled]), tmp_path)
    with pytest.raises(ValueError, match="safe_mode=False"):
        amp.load_model(path)
    loaded = amp.load_model(path, "bf16", safe_mode=False)
    assert float(prediction(loaded, np.ones((1, 4), "float32"))[0, 0]) == 2.0
