"""Going back: policies, files, in any order."""

import itertools

import keras
import pytest
from keras import layers

import tf_amp_kit as amp
from tests.precision.pinning import models
from tf_amp_kit.tracing.paths import LayerPaths


@pytest.fixture(autouse=True)
def _mixed():
    keras.config.set_dtype_policy("mixed_bfloat16")


def test_undo_restores_the_very_policies():
    model = models.attention()
    before = {path: layer.dtype_policy for path, layer in LayerPaths(model)}
    pins = amp.pin_float32(model, "attention/output_dense", "head")
    pins.undo()
    assert all(layer.dtype_policy is before[path] for path, layer in LayerPaths(model))


def test_a_block_that_was_pinned_whole_goes_back_whole():
    model = models.chain(models.Forgetting(name="block"))
    before = model.get_layer("block").dtype_policy
    pins = amp.pin_float32(model, "block")
    assert [pin.in_files for pin in pins.pins] == ["needs tf_amp_kit"]
    pins.undo()
    assert model.get_layer("block").dtype_policy is before
    assert models.in_float32(model) == set()


def test_undoing_a_second_call_restores_the_policies_from_before_the_first():
    model = models.chain(models.Forgetting(name="block"))
    before = model.get_layer("block").dtype_policy
    amp.pin_float32(model, "head")
    for _ in range(2):
        pins = amp.pin_float32(model)
    pins.undo()
    assert model.get_layer("block").dtype_policy is before
    assert models.in_float32(model) == {"head"}


def test_undo_twice_does_nothing():
    model = models.chain()
    pins = amp.pin_float32(model)
    pins.undo()
    model.get_layer("head").dtype_policy = "float32"
    pins.undo()
    assert models.in_float32(model) == {"head"}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pins_are_undone_in_any_order_and_files_follow(order):
    model = models.chain(models.Passing(name="block"))
    paths = ("block/norm", "block/dense", "head")
    pins = [amp.pin_float32(model, path) for path in paths]
    left = set(paths)
    for index in order:
        pins[index].undo()
        left.remove(paths[index])
        assert models.in_float32(model) == left
        assert models.in_float32(keras.models.clone_model(model)) == left
    assert model.get_layer("block").dtype_policy.name == "mixed_bfloat16"


def test_a_map_of_the_users_own_is_kept_and_comes_back():
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    policies["attention/value"] = keras.dtype_policies.DTypePolicy("float32")
    inputs = keras.Input((6, 8))
    outputs = layers.MultiHeadAttention(2, 4, name="attention", dtype=policies)(inputs, inputs)
    model = keras.Model(inputs, outputs)
    pins = amp.pin_float32(model, "attention/key_dense")
    clone = keras.models.clone_model(model)
    both = {"attention/value_dense", "attention/key_dense"}
    assert models.in_float32(model) == models.in_float32(clone) == both
    pins.undo()
    assert models.in_float32(model) == {"attention/value_dense"}
    assert list(policies) == ["attention/value"]


def test_a_map_of_the_users_own_is_carried_along_with_the_pins():
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="mixed_bfloat16")
    policies["block/other"] = keras.dtype_policies.DTypePolicy("float32")
    model = models.chain(models.Forgetting(name="block", dtype=policies))
    (pin,) = amp.pin_float32(model, "block/norm").pins
    assert pin.in_files == "needs tf_amp_kit"
    assert dict(model.get_layer("block").dtype_policy) == dict(policies)


def test_a_layer_that_got_another_policy_since_keeps_it():
    model = models.chain(layers.Dense(4, name="body"))
    pins = amp.pin_float32(model, "body", "head")
    model.get_layer("head").dtype_policy = "mixed_float16"
    pins.undo()
    assert models.dtypes(model)["head"] == "float16"
    assert models.dtypes(model)["body"] == "bfloat16"


def test_a_model_takes_float32_inputs_until_its_last_pin_is_undone():
    model = keras.Sequential([layers.Rescaling(0.5), layers.Dense(1)])
    model(keras.ops.ones((2, 1)))
    first, last = (amp.pin_float32(model, path) for path in ("rescaling", "dense"))
    first.undo()
    assert model.inputs[0].dtype == "float32"
    last.undo()
    assert model.inputs[0].dtype == "bfloat16"


OVERLAPPING = {
    "the same layer twice": ("block/dense", "block/dense", "block/dense"),
    "a layer, then what holds it": ("block/dense", "block", "block/dense"),
    "what holds a layer, then the layer": ("block", "block/dense", "block/dense"),
}


@pytest.mark.parametrize("first_to_go", [0, 1])
@pytest.mark.parametrize("case", OVERLAPPING)
def test_a_layer_stays_pinned_as_long_as_anybody_pins_it(case, first_to_go):
    *targets, shared = OVERLAPPING[case]
    model = models.chain(models.Passing(name="block"))
    pins = [amp.pin_float32(model, target) for target in targets]
    pins.pop(first_to_go).undo()
    assert shared in models.in_float32(model)
    assert shared in models.in_float32(keras.models.clone_model(model))
    pins.pop().undo()
    assert models.in_float32(model) == set()
    assert models.in_float32(keras.models.clone_model(model)) == set()


def test_pins_apply_to_the_model_that_they_are_on():
    model = models.chain()
    pins = amp.pin_float32(model)
    assert pins.apply(model).paths == ("head",)


def test_a_part_that_a_file_cannot_keep_alone_stays_whole_when_the_whole_is_unpinned():
    both = layers.Bidirectional(layers.LSTM(2), name="both")
    model = keras.Sequential([keras.Input((3, 4)), both, layers.Dense(1, name="head")])
    whole = {path for path, _ in LayerPaths(model) if path.startswith("both")}
    outer, inner = (amp.pin_float32(model, path) for path in ("both", "both/forward_layer/cell"))
    outer.undo()
    assert models.in_float32(model) == whole
    assert models.in_float32(keras.models.clone_model(model)) == whole
    inner.undo()
    assert models.in_float32(model) == set()
    assert models.in_float32(keras.models.clone_model(model)) == set()
