"""`Float32` around layers of every kind, under every policy and in every wrapping."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.layers.cases import normal
from tests.precision.layers.layers import (
    Branches,
    HalfInBuild,
    Lies,
    MadeInBuild,
    MadeInInit,
    Seen,
    Uncast,
    WithLoss,
)
from tf_amp_kit.tracing.paths import LayerPaths

Float32 = amp.layers.Float32

HALF_POLICIES = ("mixed_float16", "mixed_bfloat16", "float16", "bfloat16")
by_policy = pytest.mark.parametrize("policy", HALF_POLICIES)


def seen_in(layer: Any) -> set[str]:
    """What all `Seen` layers inside have noted."""
    found = [sub.dtypes for _, sub in LayerPaths(layer) if isinstance(sub, Seen)]
    assert found
    return set().union(*found)


def sequential() -> Any:
    return keras.Sequential([Seen(), keras.Sequential([Seen(4)])])


def functional() -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, Seen()(keras.layers.ReLU()(MadeInInit()(inputs))))


def twice_wrapped() -> Any:
    return keras.Sequential([Float32(Seen()), Seen()])


def built_layer() -> Any:
    return built(Seen())


def built_composite() -> Any:
    return built(MadeInBuild())


BUILT = (built_layer, built_composite, functional)
KINDS = {
    "built": built_layer,
    "unbuilt": Seen,
    "made in init": MadeInInit,
    "made in build": MadeInBuild,
    "built with its sublayer": built_composite,
    "uncast": Uncast,
    "sequential": sequential,
    "functional": functional,
    "wrapped twice": twice_wrapped,
}
by_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def built(layer: Any) -> Any:
    layer(tf.zeros((1, 4)))
    return layer


def wrapped(make: Callable[[], Any]) -> Any:
    """The layer in `Float32`, with nothing noted so far."""
    if make in BUILT and "mixed" not in keras.config.dtype_policy().name:
        pytest.skip("has half variables, and is refused")
    layer = Float32(make())
    for _, sub in LayerPaths(layer):
        if isinstance(sub, Seen):
            sub.dtypes.clear()
    return layer


def called(layer: Any) -> Any:
    return layer(tf.ones((2, 4), "float16"))


def in_functional(layer: Any) -> Any:
    inputs = keras.Input((4,))
    return keras.Model(inputs, layer(keras.layers.Rescaling(2.0)(inputs)))(tf.ones((2, 4)))


def in_sequential(layer: Any) -> Any:
    return keras.Sequential([keras.layers.Rescaling(2.0), layer])(tf.ones((2, 4)))


def in_time(layer: Any) -> Any:
    return keras.layers.TimeDistributed(layer)(tf.ones((2, 5, 4)))


def in_dynamic_time(layer: Any) -> Any:
    inputs = keras.Input((None, 4))
    return keras.Model(inputs, keras.layers.TimeDistributed(layer)(inputs))(tf.ones((2, 5, 4)))


def in_subclass(layer: Any) -> Any:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer

        def call(self, inputs: Any) -> Any:
            return self.inner(inputs)

    return Model()(tf.ones((2, 4)))


def in_graph(layer: Any) -> Any:
    return tf.function(called)(layer)


def in_jit(layer: Any) -> Any:
    called(layer)
    return tf.function(called, jit_compile=True)(layer)


SURROUNDINGS = [
    called,
    in_functional,
    in_sequential,
    in_time,
    in_dynamic_time,
    in_subclass,
    in_graph,
    in_jit,
]


@pytest.mark.parametrize("surround", SURROUNDINGS)
@by_kind
@by_policy
def test_all_in_it_reads_and_computes_float32(
    policy: str, make: Callable[[], Any], surround: Callable[[Any], Any]
) -> None:
    keras.config.set_dtype_policy(policy)
    layer = wrapped(make)
    surround(layer)
    assert seen_in(layer) == {"float32"}


@by_kind
@by_policy
@pytest.mark.filterwarnings("ignore:.build... was called on layer")  # by Keras, for a composite
def test_a_layer_rebuilt_from_its_config_computes_float32(
    policy: str, make: Callable[[], Any]
) -> None:
    keras.config.set_dtype_policy(policy)
    layer = wrapped(make)
    called(layer)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer),
        custom_objects={
            c.__name__: c for c in (Seen, MadeInInit, MadeInBuild, Uncast, keras.layers.ReLU)
        },
    )
    called(again)
    assert seen_in(again) == {"float32"}


def test_a_sublayer_that_asks_for_half_is_float32_once_it_is_built() -> None:
    layer = Float32(HalfInBuild())
    layer.build((None, 4))
    called(layer)
    assert seen_in(layer) == {"float32"}


@by_policy
def test_results_come_back_to_the_compute_dtype(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    assert called(Float32(Seen())).dtype.name == policy.removeprefix("mixed_")


@by_policy
def test_results_stay_float32_where_asked_for(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    assert called(Float32(Seen(), output="float32")).dtype.name == "float32"


@pytest.mark.parametrize("surround", SURROUNDINGS)
def test_results_equal_those_of_a_float32_program(surround: Callable[[Any], Any]) -> None:
    keras.utils.set_random_seed(1)
    expected = surround(keras.layers.Dense(3, dtype="float32"))
    with amp.amp_scope("bf16"):
        keras.utils.set_random_seed(1)
        found = surround(Float32(keras.layers.Dense(3)))
    np.testing.assert_array_equal(found, tf.cast(expected, "bfloat16"))


def test_a_dtype_decides_what_results_come_back_to() -> None:
    assert called(Float32(Seen(), dtype="mixed_bfloat16")).dtype.name == "bfloat16"


def test_the_policy_at_construction_decides_later_too() -> None:
    with amp.amp_scope("bf16"):
        layer = Float32(Seen())
    assert called(layer).dtype.name == "bfloat16"


def test_setting_a_policy_changes_only_what_results_come_back_to() -> None:
    layer = Float32(Seen())
    layer.dtype_policy = "mixed_float16"
    assert called(layer).dtype.name == "float16"
    assert seen_in(layer) == {"float32"} == {layer.compute_dtype}


def test_in_a_float32_program_it_is_just_the_layer() -> None:
    layer = keras.layers.Dense(4)
    x = normal(3, 5)
    found = Float32(layer)(x)
    np.testing.assert_array_equal(found, layer(x))
    assert found.dtype.name == "float32"


def test_several_inputs_and_outputs_pass_through() -> None:
    x, y = normal(2, 3, 4), normal(2, 5, 4, seed=8)
    seen = np.tri(3, 5)[None] > 0
    plain = keras.layers.MultiHeadAttention(2, 3)
    expected = plain(x, y, attention_mask=seen, return_attention_scores=True)
    with amp.amp_scope("bf16"):
        layer = Float32(keras.layers.MultiHeadAttention(2, 3), output="float32")
        layer(x, y)
    layer.set_weights(plain.get_weights())
    found = layer(query=x, value=y, attention_mask=seen, return_attention_scores=True)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_a_dictionary_floats_come_back_and_integers_stay() -> None:
    with amp.amp_scope("bf16"):
        layer = Float32(Branches())
        out = layer({"x": tf.ones((2, 4), "float16"), "ids": tf.constant([3, 4])})
    assert {key: value.dtype.name for key, value in out.items()} == {
        "y": "bfloat16",
        "best": "int32",
        "ids": "int32",
    }
    assert seen_in(layer) == {"float32"}


@by_policy
def test_the_symbolic_dtype_is_what_comes_back(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    inputs = keras.Input((4,))
    for layer in (Float32(Seen()), Float32(Seen(), output="float32"), Float32(Lies())):
        outputs = layer(inputs)
        found = keras.Model(inputs, outputs)(tf.ones((2, 4)))
        assert outputs.dtype == found.dtype.name
        assert outputs.shape[1:] == found.shape[1:]


def test_the_output_shape_is_the_layer_s() -> None:
    layer = Float32(keras.layers.Conv1D(7, 3, strides=2))
    assert layer.compute_output_shape((None, 11, 2)) == (None, 5, 7)


def test_a_mask_reaches_the_layer_and_the_one_behind_it() -> None:
    ids = np.array([[3, 1, 0, 0], [2, 0, 0, 0]])

    def make(wrap: Callable[[Any], Any]) -> Any:
        keras.utils.set_random_seed(1)
        return keras.Sequential(
            [
                wrap(keras.layers.Embedding(9, 4, mask_zero=True)),
                wrap(keras.layers.Dense(3)),
                wrap(keras.layers.LSTM(4, return_sequences=True)),
                keras.layers.LSTM(2, dtype="float32"),
            ]
        )

    expected = make(lambda layer: layer)(ids)
    with amp.amp_scope("bf16"):
        found = make(lambda layer: Float32(layer, output="float32"))(ids)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("output", ["compute", "float32"])
def test_a_mask_is_kept_when_results_come_back(output: str) -> None:
    x = np.array([[[1.0], [0.0]]], "float32")
    masking = Float32(keras.layers.Masking(), output=output, dtype="mixed_float16")
    summed = Float32(keras.layers.LSTM(2), dtype="float32")
    plain = keras.layers.LSTM(2)
    plain.build((1, 2, 1))
    summed.build((1, 2, 1))
    summed.set_weights(plain.get_weights())
    expected = plain(x, mask=np.array([[True, False]]))
    np.testing.assert_array_equal(summed(masking(x)), expected)


def embedded() -> Any:
    return keras.Sequential([keras.layers.Embedding(9, 4, mask_zero=True), keras.layers.Dense(3)])


def test_a_mask_made_inside_a_model_comes_out_of_it() -> None:
    ids = np.array([[3, 1, 0, 0]])
    layer = Float32(embedded(), dtype="mixed_bfloat16")
    # In the same dtype, as Keras 3.10 drops the mask of what it casts.
    lstm = keras.layers.LSTM(2, dtype="mixed_bfloat16")
    found = lstm(layer(ids))
    np.testing.assert_array_equal(found, lstm(tf.identity(layer(ids))[:, :2]))


# Keras says so of every Sequential model that gets a mask.
@pytest.mark.filterwarnings("ignore:(?s).*does not support masking")
def test_a_mask_on_half_inputs_goes_into_a_model() -> None:
    ids = np.array([[3, 1, 0, 0]])
    embedding = keras.layers.Embedding(9, 4, mask_zero=True, dtype="mixed_bfloat16")
    layer = Float32(keras.Sequential([keras.layers.Dense(3), keras.layers.LSTM(2)]))
    found = layer(embedding(ids))
    np.testing.assert_array_equal(found, layer(tf.identity(embedding(ids))[:, :2]))


def test_a_layer_that_is_made_in_the_call_is_float32() -> None:
    seen = []

    class Careless(keras.layers.Layer):
        def call(self, inputs: Any) -> Any:
            activation = keras.layers.ReLU()
            seen.append(activation.compute_dtype)
            return activation(inputs)

    with amp.amp_scope("fp16"):
        called(Float32(Careless()))
    assert seen == ["float32"]


def test_an_explicit_mask_is_passed_on() -> None:
    x, mask = normal(2, 4), np.array([[True, False, True, False]] * 2)
    expected = keras.layers.Softmax()(x, mask=mask)
    np.testing.assert_array_equal(Float32(keras.layers.Softmax())(x, mask=mask), expected)


def test_time_distributed_hands_on_each_step_s_mask() -> None:
    x, mask = normal(2, 3, 4), np.random.default_rng(0).random((2, 3, 4)) > 0.4
    expected = keras.layers.TimeDistributed(keras.layers.Softmax())(x, mask=mask)
    found = keras.layers.TimeDistributed(Float32(keras.layers.Softmax()))(x, mask=mask)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("is_training", [True, False])
def test_training_reaches_the_layer(is_training: bool) -> None:
    x = tf.ones((4, 100))
    for layer in (
        Float32(keras.layers.Dropout(0.5)),
        keras.Sequential([Float32(keras.layers.Dropout(0.5))]),
    ):
        assert bool(tf.reduce_all(layer(x, training=is_training) == x)) is not is_training


@pytest.mark.parametrize("jit_compile", [False, True])
@by_policy
def test_losses_inside_train_where_half_ones_would_not(policy: str, jit_compile: bool) -> None:
    keras.config.set_dtype_policy(policy)
    layers = [
        Float32(keras.layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l1")),
        Float32(WithLoss()),
        Float32(keras.layers.Dense(1), output="float32"),
    ]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit_compile)
    before = model.get_weights()
    # The first steps in float16 find a loss scale.
    history = model.fit(normal(8, 3), normal(8, 1), epochs=20, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert all((a != b).any() for a, b in zip(before, model.get_weights(), strict=True))


def wrapped_identity() -> Any:
    dense = keras.layers.Dense(4, kernel_initializer="identity")
    return Float32(dense, activity_regularizer="l2")


def sum_in_half() -> Any:
    return amp.layers.Sum(axis=-1, keepdims=True, output="compute", activity_regularizer="l2")


# Keras's factor is 0.01. In float16 the squares are infinite.
@pytest.mark.parametrize(
    ("make", "outputs", "loss"),
    [(wrapped_identity, 4 * [300.0], 0.01 * 4 * 300**2), (sum_in_half, [1200.0], 0.01 * 1200**2)],
)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_activities_are_regularized_in_float32(
    make: Callable[[], Any], outputs: list[float], loss: float, policy: str
) -> None:
    keras.config.set_dtype_policy(policy)
    before = keras.layers.Dense(4, kernel_initializer="identity")
    model = keras.Sequential([keras.Input((4,)), before, make()])
    model.compile("sgd", "mse")
    found = model.train_on_batch(np.full((1, 4), 300.0), np.array([outputs]))
    assert found == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("make", [wrapped_identity, sum_in_half])
def test_a_regularizer_of_activities_is_kept_in_files(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), make()])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    x = np.ones((1, 4))
    model(x)
    again(x)
    assert [float(loss) for loss in again.losses] == [float(loss) for loss in model.losses]
    assert again.layers[0].activity_regularizer.regularizer.l2 == pytest.approx(0.01)


def test_the_layer_s_losses_are_the_wrapper_s() -> None:
    layer = Float32(keras.layers.Dense(4, activity_regularizer="l2", kernel_regularizer="l1"))
    layer(normal(8, 3))
    np.testing.assert_array_equal(layer.losses, layer.layer.losses)
    assert len(layer.losses) == 2


class Doubling(Float32):
    """Adds to what the wrapper does."""

    def build(self, *shapes: Any, **named_shapes: Any) -> None:
        super().build(*shapes, **named_shapes)
        self.factor = 2

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return super().call(*args, **kwargs) * self.factor


def test_a_subclass_may_add_to_call_and_build() -> None:
    x = np.ones((1, 4), "float16")
    dense = keras.layers.Dense(3, dtype="float32")
    found = Doubling(dense, dtype="mixed_float16")(x)
    assert found.dtype.name == "float16"
    np.testing.assert_array_equal(found, 2 * tf.cast(dense(x), "float16"))


def test_trainable_reaches_the_layer() -> None:
    layer = Float32(keras.layers.Dense(4))
    layer.build((None, 3))
    layer.trainable = False
    assert layer.trainable_variables == []
    assert len(layer.non_trainable_variables) == 2


def test_a_gradient_survives_that_half_loses() -> None:
    x = tf.constant([[1e-3, 0.0]], "float16")

    def gradient(layer: Any) -> list[list[float]]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(tf.cast(layer(x), "float32"))
        return tape.gradient(value, x).numpy().tolist()

    def inverse_distance(x: Any) -> Any:
        # Squares of 1e-3 are 1e-6, and one less: half has neither.
        return 1e-3 * keras.ops.log(keras.ops.sum(x * x, axis=-1) + 1e-12)

    with amp.amp_scope("fp16"):
        half = gradient(keras.layers.Lambda(inverse_distance))
        wide = gradient(Float32(keras.layers.Lambda(inverse_distance)))
    # d/dx of 1e-3 log(x^2) is 2e-3 / x.
    assert wide[0] == pytest.approx([2.0, 0.0], rel=2e-3)
    assert half[0] != pytest.approx([2.0, 0.0], rel=2e-2)


def with_half_input() -> Any:
    inputs = keras.Input((4,), dtype="float16")
    return keras.Model(inputs, keras.layers.Rescaling(0.5)(inputs))


def with_first_layer_s_dtype() -> Any:
    model = keras.Sequential([keras.layers.Rescaling(0.5)])
    model.build((None, 4))
    return model


@pytest.mark.parametrize("make", [with_half_input, with_first_layer_s_dtype])
def test_a_model_does_not_round_its_inputs(make: Callable[[], Any]) -> None:
    with amp.amp_scope("fp16"):
        model = make()
    assert model.inputs[0].dtype == "float16"
    layer = Float32(model, output="float32")
    again = Float32.from_config(layer.get_config())
    for one in (layer, again):
        assert float(one(tf.fill((1, 4), 1e5))[0, 0]) == 5e4


def test_a_quantized_layer_keeps_its_mode() -> None:
    dense = keras.layers.Dense(4, dtype="mixed_bfloat16")
    dense.build((None, 4))
    dense.quantize("int8")
    called(Float32(dense))
    assert dense.dtype_policy.name == "int8_from_float32"


def refused(layer: Any, message: str, **kwargs: Any) -> None:
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        Float32(layer, **kwargs)


def test_what_is_no_layer_is_refused() -> None:
    refused(
        keras.ops.softmax,
        "Only layers can be wrapped. Expected a keras.layers.Layer. Received: layer=<function",
    )


def test_an_unknown_output_is_refused() -> None:
    message = (
        "Unknown output. Expected 'compute', for the compute dtype, or 'float32'. "
        "Received: output='float16'."
    )
    refused(Seen(), message, output="float16")


def test_variables_stored_in_half_are_refused_with_the_way_out() -> None:
    layer = keras.Sequential([keras.layers.Dense(2, dtype="float16", name="head")], name="net")
    layer.build((None, 3))
    refused(
        layer,
        "A layer that stores its variables in half precision cannot compute with float32 ones. "
        "Expected variables in float32. Received: layer='net' with 2 in half, 'net/head/kernel' "
        "first. Build it with dtype='float32' or a mixed policy, whose variables are float32.",
    )


def test_bidirectional_around_it_is_refused_with_the_way_out() -> None:
    message = (
        "Bidirectional cannot turn a wrapped layer around. Expected the wrapper outside. "
        "Received: Bidirectional(Float32(layer)), go_backwards=True. "
        "Write Float32(Bidirectional(layer))."
    )
    with pytest.raises(amp.errors.LayerError, match=re.escape(message)):
        keras.layers.Bidirectional(Float32(keras.layers.LSTM(3)))


@pytest.mark.parametrize("wrap", [lambda cell: cell, Float32], ids=["bare", "wrapped"])
def test_stacked_cells_with_dropout_are_refused_with_the_way_out(wrap: Any) -> None:
    cells = [wrap(keras.layers.LSTMCell(2, dropout=0.5)), keras.layers.LSTMCell(2)]
    refused(
        keras.layers.StackedRNNCells(cells, name="stack"),
        "Keras finds the dropout of cells only directly in StackedRNNCells. Expected cells "
        "without dropout. Received: layer='stack'. Wrap each cell: "
        "StackedRNNCells([Float32(cell), ...], dtype='float32').",
    )
