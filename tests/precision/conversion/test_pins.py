"""Pins through files and conversions, those that Keras cannot express included."""

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.pinning import models

pytestmark = [
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:The configuration pins:tf_amp_kit.errors.PinWarning"),
]


def attention():
    return models.attention(), {"attention/output_dense", "head"}


def forgetting():
    return models.chain(models.Forgetting(name="block")), {"block/norm", "head"}


def whole():
    return models.chain(models.Forgetting(name="block")), {"block", "block/norm", "block/dense"}


def subclassed():
    return models.net(), {"block/dense", "head"}


BUILDERS = [attention, forgetting, whole, subclassed]


@pytest.fixture(params=BUILDERS, ids=lambda build: build.__name__)
def pinned(request):
    keras.config.set_dtype_policy("mixed_float16")
    model, targets = request.param()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    amp.pin_float32(model, *targets)
    model.fit(*batch(model), verbose=0)
    return model, targets


def batch(model):
    shape = (4, 6, 8) if "attention" in model.name else (4, 4)
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    return x, np.zeros(model(x).shape, "float32")


def test_load_model_gives_pins_losses_and_slots_back(pinned, tmp_path):
    model, targets = pinned
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("float32")
    loaded = amp.load_model(tmp_path / "model.keras")
    assert models.in_float32(loaded) == targets
    assert isinstance(loaded.optimizer, keras.optimizers.LossScaleOptimizer)
    pairs = zip(model.optimizer.variables, loaded.optimizer.variables, strict=True)
    assert all(np.array_equal(old.numpy(), new.numpy()) for old, new in pairs)
    for one in (model, loaded):
        one.fit(*batch(model), verbose=0)
    assert all(map(np.array_equal, model.get_weights(), loaded.get_weights()))


def test_a_second_file_says_the_same(pinned, tmp_path):
    model, _ = pinned
    model.save(tmp_path / "first.keras")
    amp.load_model(tmp_path / "first.keras").save(tmp_path / "second.keras")
    first, second = (models.config_in(tmp_path / f"{name}.keras") for name in ("first", "second"))
    assert first == second


def test_an_audit_shows_loaded_pins_that_need_this_package(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model, targets = forgetting()
    amp.pin_float32(model, *targets)
    model.save(tmp_path / "model.keras")
    report = amp.audit_layer_dtypes(amp.load_model(tmp_path / "model.keras"), verbose=0)
    assert "pinned" in {row.remark for row in report.rows if row.path == "block/norm"}


def test_pins_go_along_to_another_half_precision(pinned):
    model, targets = pinned
    twin = amp.convert_model(model, "bf16")
    assert models.in_float32(twin) == targets
    assert set(models.layer_dtypes(twin).values()) == {"float32", "bfloat16"}
    clone = amp.convert_model(twin, "fp16")
    assert models.in_float32(clone) == targets


def test_converted_pins_are_in_the_files_of_the_twin(pinned, tmp_path):
    model, targets = pinned
    twin = amp.convert_model(model, "bf16")
    twin.save(tmp_path / "twin.keras")
    loaded = amp.load_model(tmp_path / "twin.keras")
    assert models.in_float32(loaded) == targets
    assert "bfloat16" in models.layer_dtypes(loaded).values()


def test_a_float32_twin_knows_no_pins(pinned, tmp_path):
    model, _ = pinned
    twin = amp.to_float32(model)
    assert set(models.layer_dtypes(twin).values()) == {"float32"}
    twin.save(tmp_path / "twin.keras")
    assert "pins" not in str(models.config_in(tmp_path / "twin.keras"))


def test_load_model_pins_what_it_is_told(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = models.chain(layers.Dense(4, name="body"))
    model.save(tmp_path / "model.keras")
    pins = amp.pin_float32(model, "body")
    pins.save(tmp_path / "pins.json")
    for given in (pins, tmp_path / "pins.json", str(tmp_path / "pins.json")):
        loaded = amp.load_model(tmp_path / "model.keras", pins=given)
        assert models.in_float32(loaded) == {"body"}


def test_wrong_pins_are_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(amp.errors.PinError, match="Unknown pins"):
        amp.load_model(tmp_path / "missing.keras", pins=3)


def test_the_policy_of_the_program_comes_back(pinned, tmp_path):
    model, _ = pinned
    model.save(tmp_path / "model.keras")
    keras.config.set_dtype_policy("bfloat16")
    amp.load_model(tmp_path / "model.keras")
    assert keras.config.dtype_policy().name == "bfloat16"


def test_a_pin_of_a_layer_that_the_code_has_no_more_is_told(tmp_path, monkeypatch):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model, targets = forgetting()
    amp.pin_float32(model, *targets)
    model.save(tmp_path / "model.keras")

    def renamed(self, **kwargs):
        super(models.Passing, self).__init__(**kwargs)
        self.unit, self.dense = layers.UnitNormalization(), layers.Dense(4)
        self.norm = lambda x: self.unit(x)
        self.norm.build = lambda shape: None

    monkeypatch.setattr(models.Forgetting, "__init__", renamed)
    with pytest.raises(amp.errors.LoadError, match="The file pins layers that the model has no"):
        amp.load_model(tmp_path / "model.keras")


def test_a_map_of_the_users_own_comes_back_with_the_pins(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    policies["block/other"] = keras.dtype_policies.DTypePolicy("float32")
    model = models.chain(models.Forgetting(name="block", dtype=policies))
    amp.pin_float32(model, "block/norm")
    model.save(tmp_path / "model.keras")
    loaded = amp.load_model(tmp_path / "model.keras")
    assert models.in_float32(loaded) == {"block/norm"}
    assert list(loaded.get_layer("block").dtype_policy) == ["block/other"]


@keras.saving.register_keras_serializable("pinning_tests")
class Unnamed(models.Passing):
    """A block that passes its policy on, to layers whose names Keras counts."""

    def __init__(self, **kwargs):
        super(models.Passing, self).__init__(**kwargs)
        self.norm = layers.UnitNormalization(dtype=self.dtype_policy)
        self.dense = layers.Dense(4, dtype=self.dtype_policy)


def test_pins_come_back_once_where_a_block_passes_their_policy_on(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = models.chain(Unnamed(name="block"))
    (pin,) = amp.pin_float32(model, "block/norm").pins
    assert pin.in_files == "needs tf_amp_kit"
    model.save(tmp_path / "model.keras")
    assert models.in_float32(amp.load_model(tmp_path / "model.keras")) == {"block/norm"}


def test_pins_of_a_file_can_be_undone(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    model, targets = subclassed()
    amp.pin_float32(model, *targets)
    model.save(tmp_path / "model.keras")
    twin = amp.load_model(tmp_path / "model.keras")
    pins = amp.pin_float32(twin)
    assert set(pins.paths) > targets
    pins.undo()
    assert models.in_float32(twin) == set()
