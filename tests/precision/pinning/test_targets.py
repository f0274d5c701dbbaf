"""Naming what to pin: layers, classes and patterns, and the errors."""

import re

import keras
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.pinning import models


@pytest.fixture(autouse=True)
def _mixed():
    keras.config.set_dtype_policy("mixed_bfloat16")


def blocks():
    inner = keras.Sequential(
        [keras.Input((4,)), layers.Dense(4, name="up"), layers.ReLU(name="relu")], name="inner"
    )
    return models.chain(inner, layers.Dense(4, name="body"))


def test_a_pattern_has_to_match_the_whole_path():
    assert amp.pin_float32(blocks(), "inner/.*").paths == ("inner/up", "inner/relu")
    assert amp.pin_float32(blocks(), "(body|head)").paths == ("body", "head")
    with pytest.raises(amp.errors.PinError):
        amp.pin_float32(blocks(), "bod")


def test_sublayers_follow_and_are_not_listed():
    block = models.chain(models.Passing(name="block"))
    assert amp.pin_float32(block, "block", "block/norm").paths == ("block",)
    assert models.in_float32(block) == {"block", "block/norm", "block/dense"}


def test_a_nested_graph_model_means_its_layers():
    model = blocks()
    assert amp.pin_float32(model, "inner").paths == ("inner/up", "inner/relu")
    assert models.in_float32(model) == {"inner/up", "inner/relu"}


def test_a_class_means_all_its_layers_wherever_they_are():
    model = blocks()
    assert set(amp.pin_float32(model, layers.Dense).paths) == {"inner/up", "body", "head"}


def test_a_layer_means_itself():
    model = blocks()
    pins = amp.pin_float32(model, model.get_layer("body"))
    assert [(pin.path, pin.layer_class, pin.reason) for pin in pins.pins] == [
        ("body", "Dense", "given")
    ]


def test_a_layer_of_time_distributed_means_the_outermost_of_these():
    each = layers.TimeDistributed(layers.TimeDistributed(layers.Dense(2)), name="each")
    model = keras.Sequential([keras.Input((3, 5, 4)), each])
    (pin,) = amp.pin_float32(model, layers.Dense).pins
    assert (pin.path, pin.reason) == ("each", "is a Dense")


def test_the_model_means_all_its_layers():
    model = blocks()
    assert amp.pin_float32(model, model).paths == ("inner/up", "inner/relu", "body", "head")


def test_with_targets_nothing_else_is_pinned():
    model = blocks()
    amp.pin_float32(model, "body")
    assert models.in_float32(model) == {"body"}


def test_a_second_call_adds_to_the_first():
    model = blocks()
    amp.pin_float32(model, "body")
    amp.pin_float32(model, "head")
    assert models.in_float32(model) == {"body", "head"}


UNKNOWN = {
    "a pattern, with near misses": ("bodi", "Near misses: 'body'."),
    "a class": (layers.Conv2D, "no layer of class Conv2D. It has Dense, ReLU, Sequential."),
    "a layer": (layers.Dense(2, name="stray"), "The layer 'stray' is not part of the model."),
    "no regular expression": ("(", "no regular expression: "),
    "a number": (3, "Received: 3."),
    "a class of another kind": (int, "Received: <class 'int'>."),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_matches_nothing_is_an_error_and_pins_nothing(case):
    target, message = UNKNOWN[case]
    model = blocks()
    with pytest.raises(amp.errors.PinError, match=re.escape(message)):
        amp.pin_float32(model, "body", target)
    assert models.in_float32(model) == set()


def test_no_model_is_an_error():
    with pytest.raises(amp.errors.ModelError):
        amp.pin_float32("model.keras")


def test_layers_that_store_half_variables_are_refused_with_the_way_out():
    keras.config.set_dtype_policy("bfloat16")
    model = models.chain(layers.Dense(4, name="body"))
    with pytest.raises(amp.errors.PinError) as error:
        amp.pin_float32(model, "head")
    assert "Received: 'head' stored in bfloat16." in str(error.value)
    assert '`tf_amp_kit.convert_model(model, "mixed_bfloat16")`' in str(error.value)


def test_composites_that_would_be_pinned_whole_are_refused_so_too():
    keras.config.set_dtype_policy("bfloat16")
    model = models.attention()
    with pytest.raises(amp.errors.PinError, match="Received: 'attention' stored in bfloat16"):
        amp.pin_float32(model, "attention/softmax")
    assert models.in_float32(model) == set()


def test_an_unbuilt_model_takes_targets():
    model = keras.Sequential([layers.Dense(4, name="body"), layers.Dense(2, name="head")])
    amp.pin_float32(model, "head")
    model.build((None, 3))
    assert [layer.compute_dtype for layer in model.layers] == ["bfloat16", "float32"]


def test_an_unbuilt_model_without_targets_needs_inputs():
    model = keras.Sequential([layers.Dense(4, name="body"), layers.Dense(2, name="head")])
    with pytest.raises(amp.errors.ModelError, match="inputs"):
        amp.pin_float32(model)
    assert amp.pin_float32(model, inputs=(None, 3)).paths == ("head",)


def test_example_inputs_that_do_not_fit_are_an_error_with_targets_too():
    model = blocks()
    with pytest.raises(amp.errors.InputsError):
        amp.pin_float32(model, "head", inputs=(None, 7))
    assert models.in_float32(model) == set()


def test_the_record_prints_what_was_pinned_and_why():
    model = blocks()
    assert str(amp.pin_float32(model, "inner/up", layers.ReLU)) == (
        "Pinned in float32: 2 layers of 'chain'\n"
        "\n"
        "Layer       Class  Why        In a file\n"
        "-----------------------------------------\n"
        "inner/up    Dense  named      plain Keras\n"
        "inner/relu  ReLU   is a ReLU  plain Keras"
    )
