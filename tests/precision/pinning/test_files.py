"""Pins that are still there after save, load, clone and from_config."""

import json
import warnings

import keras
import numpy as np
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.pinning import models

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")


@pytest.fixture(autouse=True)
def _mixed(half):
    keras.config.set_dtype_policy(f"mixed_{half}")


def inside(layer):
    return lambda: models.chain(layer(), layers.Flatten(), shape=(5, 8))


# How a model is built, what is pinned, and where it is kept.
KEPT = {
    "layers of a Sequential": (inside(lambda: layers.Dense(4, name="body")), ("body", "head")),
    "a layer of a nested model": (
        inside(lambda: keras.Sequential([layers.Dense(4, name="up")], name="inner")),
        ("inner/up",),
    ),
    "a projection inside of attention": (models.attention, ("attention/output_dense",)),
    "attention whole": (models.attention, (layers.MultiHeadAttention,)),
    "a cell of an LSTM": (inside(lambda: layers.LSTM(3, name="lstm")), ("lstm/cell",)),
    "an LSTM": (inside(lambda: layers.LSTM(3, name="lstm")), ("lstm",)),
    "half of a Bidirectional": (
        inside(lambda: layers.Bidirectional(layers.LSTM(3), name="both")),
        ("both/forward_layer",),
    ),
    "a stack of cells": (
        inside(lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)], name="rnn")),
        ("rnn/cell",),
    ),
    "a layer of TimeDistributed": (
        inside(lambda: layers.TimeDistributed(layers.Dense(2), name="each")),
        ("each/layer",),
    ),
    "a layer of a block that passes its policy on": (
        inside(lambda: models.Passing(name="block")),
        ("block/dense",),
    ),
    "two layers of such a block": (
        inside(lambda: models.Passing(name="block")),
        ("block/norm", "block/dense"),
    ),
    "such a block whole": (inside(lambda: models.Passing(name="block")), ("block",)),
    "a wrapped layer": (
        inside(lambda: layers.SpectralNormalization(layers.Dense(3), name="spectral")),
        ("spectral",),
    ),
}


def reloaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")


WAYS = {
    "load": reloaded,
    "clone": lambda model, _: keras.models.clone_model(model),
    "from_config": lambda model, _: type(model).from_config(model.get_config()),
    "from_json": lambda model, _: keras.models.model_from_json(model.to_json()),
}


@pytest.mark.parametrize("half", ["bfloat16"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", KEPT)
def test_plain_keras_keeps(case, way, tmp_path):
    build, targets = KEPT[case]
    model = build()
    pins = amp.pin_float32(model, *targets)
    pinned = models.layer_dtypes(model)
    assert {pin.in_files for pin in pins.pins} == {"plain Keras"}
    keras.config.set_dtype_policy("float32")  # the files say it, not the program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", amp.errors.PinWarning)
        twin = WAYS[way](model, tmp_path)
    assert models.layer_dtypes(twin) == pinned


@pytest.mark.parametrize("half", ["float16"])
@pytest.mark.parametrize("case", KEPT)
def test_a_second_file_says_the_same(case, tmp_path):
    build, targets = KEPT[case]
    model = build()
    amp.pin_float32(model, *targets)
    model.save(tmp_path / "first.keras")
    keras.models.load_model(tmp_path / "first.keras").save(tmp_path / "second.keras")
    assert models.config_in(tmp_path / "first.keras") == models.config_in(tmp_path / "second.keras")


def test_a_file_with_pins_names_no_class_of_this_package(tmp_path):
    for build, targets in KEPT.values():
        model = build()
        amp.pin_float32(model, *targets)
        assert "tf_amp_kit" not in model.to_json().replace("pinning_tests", "")


def test_a_pinned_model_predicts_the_same_after_a_load(tmp_path):
    model = models.attention()
    amp.pin_float32(model, "attention/output_dense", "head")
    x = np.random.default_rng(0).normal(size=(4, 6, 8)).astype("float32")
    expected = model.predict(x, verbose=0)
    keras.config.set_dtype_policy("float32")
    np.testing.assert_array_equal(reloaded(model, tmp_path).predict(x, verbose=0), expected)


def test_the_softmax_of_attention_cannot_be_kept_alone():
    model = models.attention()
    pins = amp.pin_float32(model, "attention/softmax")
    (pin,) = pins.pins
    assert (pin.path, pin.in_files) == ("attention", "plain Keras")
    assert pin.reason == "a file cannot keep 'attention/softmax' alone"
    assert "attention/value_dense" in models.in_float32(model)
    pins.undo()
    assert models.in_float32(model) == set()


def test_loss_scaling_stays_on_after_a_load(half, tmp_path):
    model = models.attention()
    model.compile("adam", "mse")
    amp.pin_float32(model, "attention/output_dense", "head")
    model.fit(np.ones((2, 6, 8)), np.ones((2, 6, 3)), verbose=0)
    loaded = reloaded(model, tmp_path)
    scales = isinstance(loaded.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scales == (half == "float16")


def test_a_subclassed_model_keeps_its_policy_name_and_its_loss_scaling(half):
    model = models.net()
    amp.pin_float32(model)
    assert model.dtype_policy.name == f"mixed_{half}"
    model.compile("adam", "mse")
    scales = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert scales == (half == "float16")


def test_so_does_one_that_passes_its_policy_on(half):
    class Eager(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.head = layers.Dense(2, dtype=self.dtype_policy, name="head")
            self.build((None, 4))

        def build(self, shape):
            self.head.build(shape)
            self.built = True

        def call(self, inputs):
            return self.head(inputs)

        def get_config(self):
            return super().get_config()

    model = Eager()
    amp.pin_float32(model)
    assert model.dtype_policy.name == f"mixed_{half}"


NEEDING = {
    "a block that makes layers without its policy": (
        lambda: models.chain(models.Forgetting(name="block")),
        ("block/norm",),
        "block/norm",
    ),
    "such a block whole": (
        lambda: models.chain(models.Forgetting(name="block")),
        ("block",),
        "block",
    ),
    "a subclassed model": (models.net, ("head",), "head"),
    "a block in a subclassed model": (models.net, ("block/dense",), "block/dense"),
}


@pytest.mark.parametrize("case", NEEDING)
def test_what_keras_cannot_express_is_told_when_pinned_saved_and_read(case, tmp_path):
    build, targets, path = NEEDING[case]
    model = build()
    pins = amp.pin_float32(model, *targets)
    assert [(pin.path, pin.in_files) for pin in pins.pins] == [(path, "needs tf_amp_kit")]
    assert " for `tf_amp_kit.load_model(path)` only: " in pins.remarks[-1]
    with pytest.warns(amp.errors.PinWarning, match="whoever opens the file needs tf_amp_kit"):
        model.save(tmp_path / "model.keras")
    with pytest.warns(amp.errors.PinWarning, match="which Keras does not apply"):
        keras.models.load_model(tmp_path / "model.keras")


def test_remarks_call_a_model_without_a_path_the_model():
    remark = amp.pin_float32(models.net()).remarks[-1]
    assert remark.startswith("Files keep the pins in the model for `tf_amp_kit.load_model")


def test_a_layer_without_a_configuration_is_not_kept_and_that_is_told(tmp_path):
    class Opaque(models.Forgetting):
        def get_config(self):
            raise NotImplementedError

    pins = amp.pin_float32(models.chain(Opaque(name="block")), "block/norm")
    assert [pin.in_files for pin in pins.pins] == ["not kept"]
    assert pins.remarks[-1].startswith(
        "Files do not keep the pins in 'block': it cannot be made from it again "
        "(NotImplementedError). `pins.save(path)` them"
    )


def test_what_a_file_cannot_keep_leaves_the_policy_around_as_it_was():
    class Opaque(models.Forgetting):
        def get_config(self):
            raise NotImplementedError

    model = models.chain(Opaque(name="block"))
    before = model.get_layer("block").dtype_policy
    amp.pin_float32(model, "block/norm")
    assert model.get_layer("block").dtype_policy is before


def test_layers_that_a_model_makes_when_it_is_built_are_not_kept_by_plain_keras():
    class Late(keras.Model):
        def build(self, shape):
            self.body, self.head = layers.Dense(4), layers.Dense(2)
            self.body.build(shape)
            self.head.build((None, 4))
            self.built = True

        def call(self, inputs):
            return self.head(self.body(inputs))

    model = Late()
    model.build((None, 4))
    assert [pin.in_files for pin in amp.pin_float32(model, "head").pins] == ["needs tf_amp_kit"]


def test_where_a_pin_is_kept_does_not_depend_on_the_policy_of_the_program():
    wide = [layers.Dense(4, dtype="float32") for _ in range(9)]
    model = models.chain(*wide, models.Forgetting(name="block"))
    keras.config.set_dtype_policy("float32")
    assert [pin.in_files for pin in amp.pin_float32(model, "block").pins] == ["needs tf_amp_kit"]


def test_where_a_pin_is_kept_does_not_depend_on_other_pins():
    class Mute(models.Forgetting):
        def get_config(self):
            return {"name": self.name}

    first, second = models.Forgetting(name="first"), Mute(name="second")
    keras.config.set_dtype_policy("float32")
    model = keras.Sequential([keras.Input((4,)), first, second])
    pins = [amp.pin_float32(model, f"{name}/norm").pins[0] for name in ("first", "second")]
    assert [pin.in_files for pin in pins] == ["needs tf_amp_kit", "not kept"]


def test_a_block_whose_name_has_characters_of_patterns_is_kept_by_plain_keras():
    model = models.chain(models.Passing(name="b(1)"))
    assert [pin.in_files for pin in amp.pin_float32(model, "b(1)/dense").pins] == ["plain Keras"]
    assert models.in_float32(keras.models.clone_model(model)) == {"b(1)/dense"}


def test_automatic_names_inside_a_block_are_not_counted_on(half):
    @keras.saving.register_keras_serializable("pinning_tests")
    class Unnamed(models.Passing):
        def __init__(self, **kwargs):
            super(models.Passing, self).__init__(**kwargs)
            self.norm = layers.UnitNormalization(dtype=self.dtype_policy)
            self.dense = layers.Dense(4, dtype=self.dtype_policy)

    pins = amp.pin_float32(models.chain(Unnamed(name="block")), "block/norm")
    assert [pin.in_files for pin in pins.pins] == ["needs tf_amp_kit"]


def test_a_lambda_is_kept_by_plain_keras():
    model = models.chain(layers.Lambda(lambda x: 2 * x, name="double", output_shape=(4,)))
    assert [pin.in_files for pin in amp.pin_float32(model, "double").pins] == ["plain Keras"]


def test_looking_for_a_way_into_files_leaves_names_and_seeds_alone():
    found = []
    for pins in (True, False):
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(20)
        model = models.attention()
        if pins:
            amp.pin_float32(model, "attention/output_dense")
        layer = layers.Dense(2)
        layer.build((None, 3))
        found.append((layer.name, layer.get_weights()[0].tolist(), np.random.rand()))
    assert found[0] == found[1]


def test_saved_pins_are_json_keyed_by_path(tmp_path):
    amp.pin_float32(models.chain(layers.Dense(4, name="body")), "body").save(tmp_path / "pins.json")
    content = json.loads((tmp_path / "pins.json").read_text())
    assert content["format"] == "tf_amp_kit pins"
    assert content["pins"] == {"body": {"layer_class": "Dense", "reason": "named"}}


def test_saved_pins_apply_to_a_second_build(tmp_path):
    def build():
        return models.chain(layers.Dense(4), models.Forgetting(name="block"))

    amp.pin_float32(build(), "dense", "block/norm").save(tmp_path / "pins.json")
    second = build()  # its automatic name is another one
    pins = amp.Pins.load(tmp_path / "pins.json").apply(second)
    assert models.in_float32(second) == {"dense", "block/norm"}
    pins.undo()
    assert models.in_float32(second) == set()


def test_pins_of_another_model_are_refused_and_pin_nothing(tmp_path):
    pins = amp.pin_float32(models.chain(layers.Dense(4, name="body")), "body", "head")
    other = models.chain(layers.Dense(4, name="trunk"))
    with pytest.raises(amp.errors.PinError, match=r"Expected layers 'body'"):
        pins.apply(other)
    assert models.in_float32(other) == set()


def test_pins_of_layers_of_another_class_are_refused_and_pin_nothing():
    pins = amp.pin_float32(models.chain(layers.Dense(4, name="body")), "body", "head")
    other = models.chain(layers.ReLU(name="body"))
    with pytest.raises(amp.errors.PinError, match=r"Expected layers 'body' \(Dense\)\. "):
        pins.apply(other)
    assert models.in_float32(other) == set()


def test_loaded_pins_have_nothing_to_undo(tmp_path):
    amp.pin_float32(models.chain(), "head").save(tmp_path / "pins.json")
    with pytest.raises(amp.errors.PinError, match="on no model"):
        amp.Pins.load(tmp_path / "pins.json").undo()


NO_PINS = {
    "empty": "",
    "a list": "[]",
    "another format": '{"format": "other"}',
    "another version": '{"format": "tf_amp_kit pins", "version": 2, "model_name": "m", "pins": {}}',
    "no fields": '{"pins": [{}]}',
    "nested too deep": "[" * 100_000,
    "a list of pins": '{"format": "tf_amp_kit pins", "version": 1, "model_name": "m", "pins": []}',
}


@pytest.mark.parametrize("content", NO_PINS.values(), ids=NO_PINS)
def test_a_file_without_pins_is_refused(content, tmp_path):
    (tmp_path / "pins.json").write_text(content)
    with pytest.raises(amp.errors.PinError, match="The file holds no pins"):
        amp.Pins.load(tmp_path / "pins.json")


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        amp.Pins.load(tmp_path / "pins.json")


def activation(x):
    return keras.ops.relu(x)


def test_functions_that_are_not_registered_keep_no_pin_out_of_a_file():
    class Active(models.Passing):
        def __init__(self, function, **kwargs):
            super().__init__(**kwargs)
            self.function = keras.activations.get(function)

        def get_config(self):
            return {**super().get_config(), "function": keras.activations.serialize(self.function)}

    pins = amp.pin_float32(models.chain(Active(activation, name="block")), "block/norm")
    assert [pin.in_files for pin in pins.pins] == ["plain Keras"]


def test_no_second_weights_are_made_to_find_out_where_a_layer_is_kept():
    class Counted(layers.Dense):
        num_builds = 0

        def build(self, shape):
            type(self).num_builds += 1
            super().build(shape)

    model = models.chain(Counted(4, name="body"))
    assert [pin.in_files for pin in amp.pin_float32(model, "body").pins] == ["plain Keras"]
    assert Counted.num_builds == 1
