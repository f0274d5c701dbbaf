"""Which layers a conversion changes, and which keep what somebody chose for them."""

from __future__ import annotations

import random
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.precision.conversion.helpers import compute_dtypes, policies, prediction
from tests.precision.conversion.models import (
    attention,
    built,
    composite_without_dtype,
    functional,
    nested_sequential,
    normalised_and_dropped,
)
from tf_amp_kit.errors import ModelError, PrecisionError
from tf_amp_kit.precision.conversion.policies import PolicyChange
from tf_amp_kit.tracing.paths import LayerPaths

TO_BFLOAT16 = PolicyChange("mixed_bfloat16", moves_float32=False)


def pinned_by_name() -> keras.Model:
    pinned = layers.Dense(3, dtype="float32", name="pinned")
    return keras.Sequential([keras.Input((4,)), layers.Dense(3), pinned, layers.Dense(2)])


def test_a_float32_layer_of_a_half_model_stays() -> None:
    twin = amp.convert_model(built(pinned_by_name, "mixed_float16"), "bf16")
    assert policies(twin) == {
        "": "mixed_bfloat16",
        "dense": "mixed_bfloat16",
        "pinned": "float32",
        "dense_1": "mixed_bfloat16",
    }


def test_a_float32_layer_of_a_float32_model_changes_with_the_others() -> None:
    assert set(policies(amp.convert_model(pinned_by_name(), "bf16")).values()) == {"mixed_bfloat16"}


def test_a_float32_layer_of_a_loaded_half_model_stays() -> None:
    # Keras gives what it loads the policy that is in force by then.
    model = keras.models.clone_model(built(attention, "mixed_float16"))
    assert model.dtype_policy.name == "float32"
    model.get_layer("attend").dtype_policy = "float32"
    twin = amp.convert_model(model, "bf16")
    assert policies(twin)["attend"] == "float32"
    assert policies(twin)["dense"] == "mixed_bfloat16"


def test_to_float32_changes_pinned_and_half_layers_alike() -> None:
    twin = amp.to_float32(built(pinned_by_name, "mixed_float16"))
    assert set(policies(twin).values()) == {"float32"}


def test_a_pin_on_a_sublayer_that_no_config_tells_of_stays() -> None:
    model = built(attention, "mixed_float16")
    softmax = next(one for path, one in LayerPaths(model) if path == "attend/softmax")
    softmax.dtype_policy = "float32"
    twin = amp.convert_model(model, "bf16")
    assert compute_dtypes(twin)["attend/softmax"] == "float32"
    assert compute_dtypes(twin)["attend/query_dense"] == "bfloat16"


def test_a_pin_inside_a_composite_that_takes_the_global_policy_stays() -> None:
    model = built(composite_without_dtype, "mixed_bfloat16")
    model.get_layer("block").inner.dtype_policy = "float32"
    twin = amp.convert_model(model, "fp16")
    found = {path: dtype for path, dtype in compute_dtypes(twin).items() if "block" in path}
    assert found == {
        "block": "float16",
        "block/inner": "float32",
        "block/blocks/0": "float16",
        "block/blocks/1": "float16",
    }


def mapped_attention() -> keras.Model:
    pins = keras.dtype_policies.DTypePolicyMap(
        keras.config.dtype_policy().name, {"attend/attention_output": keras.DTypePolicy("float32")}
    )
    inputs = keras.Input((5, 4))
    attended = layers.MultiHeadAttention(2, 3, name="attend", dtype=pins)(inputs, inputs)
    return keras.Model(inputs, layers.Dense(2)(attended))


def test_a_policy_map_keeps_its_float32_entries_between_halves() -> None:
    twin = amp.convert_model(built(mapped_attention, "mixed_float16"), "bf16")
    assert compute_dtypes(twin)["attend/output_dense"] == "float32"
    assert compute_dtypes(twin)["attend/query_dense"] == "bfloat16"
    assert twin.get_layer("attend").dtype_policy.name == "map_mixed_bfloat16"


def test_a_policy_map_becomes_plain_float32() -> None:
    twin = amp.to_float32(built(mapped_attention, "mixed_float16"))
    assert set(policies(twin).values()) == {"float32"}


def test_a_policy_map_of_the_whole_program_is_found_again() -> None:
    entry = {".*/attention_output": keras.DTypePolicy("float32")}
    program = keras.dtype_policies.DTypePolicyMap("mixed_float16", entry)
    twin = amp.convert_model(built(attention, program), "bf16")
    assert compute_dtypes(twin)["attend/output_dense"] == "float32"
    assert compute_dtypes(twin)["attend/query_dense"] == "bfloat16"
    assert set(policies(amp.to_float32(twin)).values()) == {"float32"}


class Hard(layers.Layer):
    """Makes a sublayer of a policy that its code names, and no config."""

    policy = "mixed_float16"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inner = layers.Dense(3, dtype=self.policy)

    def build(self, input_shape: Any) -> None:
        self.inner.build(input_shape)
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16")])
def test_a_policy_that_code_names_is_changed_on_the_twin(precision: str, dtype: str) -> None:
    model = built(lambda: keras.Sequential([keras.Input((4,)), Hard()]), "mixed_float16")
    twin = amp.convert_model(model, precision)
    assert compute_dtypes(twin) == {"": dtype, "hard": dtype, "hard/inner": dtype}
    inputs = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    assert prediction(twin, inputs).dtype == dtype


def test_inputs_and_integers_keep_their_dtypes() -> None:
    def builder() -> keras.Model:
        ids, values = keras.Input((3,), dtype="int64"), keras.Input((2,), dtype="float16")
        counted = layers.Hashing(5, dtype="int64", name="hashing")(ids)
        embedded = layers.Flatten()(layers.Embedding(5, 2)(counted))
        return keras.Model([ids, values], layers.Concatenate()([embedded, layers.Dense(2)(values)]))

    for model in (built(builder, "mixed_bfloat16"), builder()):
        for precision in ("fp16", "fp32"):
            twin = amp.convert_model(model, precision)
            assert [one.dtype for one in twin.inputs] == ["int64", "float16"]
            assert policies(twin)["hashing"] == "int64"


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")]
)
def test_an_input_that_a_sequential_model_made_itself_follows(precision: str, dtype: str) -> None:
    model = built(nested_sequential, "mixed_float16")
    assert model.inputs[0].dtype == "float16"  # its first layer's
    assert amp.convert_model(model, precision).inputs[0].dtype == dtype


@pytest.mark.parametrize("precision", ["bf16", "float16", "fp32"])
def test_weights_in_pure_half_become_float32(precision: str) -> None:
    model = built(normalised_and_dropped, "bfloat16")
    twin = amp.convert_model(model, precision)
    assert {variable.dtype for variable in twin.weights} == {"float32"}
    for old, new in zip(model.get_weights(), twin.get_weights(), strict=True):
        assert np.array_equal(old.astype("float32"), new)


def test_a_model_without_weights_yet_is_converted_too() -> None:
    twin = amp.convert_model(keras.Sequential([layers.Dense(2)]), "fp16")
    assert not twin.built
    assert twin.layers[0].compute_dtype == "float16"


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_the_global_policy_is_left_alone(policy: str) -> None:
    model = functional()
    keras.config.set_dtype_policy(policy)
    amp.convert_model(model, "bf16")
    assert keras.config.dtype_policy().name == policy


def test_random_sequences_are_left_alone() -> None:
    model = normalised_and_dropped()
    draws = []
    for convert in (False, True):
        keras.utils.set_random_seed(1)
        if convert:
            amp.convert_model(model, "bf16")
        draws.append([random.random(), np.random.random(), float(tf.random.normal(()))])
    assert draws[0] == draws[1]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dtype": "mixed_float16"}, {"dtype": "mixed_bfloat16"}),
        ({"dtype": "float32"}, {"dtype": "float32"}),
        (
            {"deep": [{"cell_policy": "mixed_float16"}]},
            {"deep": [{"cell_policy": "mixed_bfloat16"}]},
        ),
        ({"accumulator_dtype": "float16"}, {"accumulator_dtype": "bfloat16"}),
        ({"accumulator_dtype": "float32"}, {"accumulator_dtype": "float32"}),
        ({"name": "mixed_float16"}, {"name": "mixed_float16"}),
        (
            {"class_name": "Cast", "module": "keras.src.ops.core", "config": {"dtype": "float16"}},
            {"class_name": "Cast", "module": "keras.src.ops.core", "config": {"dtype": "float16"}},
        ),
        (
            {"class_name": "Lambda", "config": {"arguments": {"dtype": "float16"}}},
            {"class_name": "Lambda", "config": {"arguments": {"dtype": "float16"}}},
        ),
        (
            {"class_name": "DTypePolicy", "config": {"name": "float16"}, "shared_object_id": 1},
            {"class_name": "DTypePolicy", "config": {"name": "mixed_bfloat16"}},
        ),
    ],
)
def test_policies_are_found_however_a_config_holds_them(config: Any, expected: Any) -> None:
    assert TO_BFLOAT16.applied_to(config) == expected


def test_only_a_layer_s_own_dtype_moves_a_float32_string_to_half() -> None:
    config = {"dtype": "float32", "accumulator_dtype": "float32"}
    changed = PolicyChange("mixed_float16", moves_float32=True).applied_to(config)
    assert changed == {"dtype": "mixed_float16", "accumulator_dtype": "float32"}


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(PrecisionError, match=r"Received: precision='fp8'"):
        amp.convert_model(functional(), "fp8")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="A layer is not a model"):
        amp.to_float32(layers.Dense(2))
