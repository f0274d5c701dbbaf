"""What training and data left in a model, beside its weights; and how it is made anew."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.precision.conversion.helpers import bits, policies, prediction
from tests.precision.conversion.models import built, shared_layer


def test_vocabularies_and_statistics_of_data_go_on() -> None:
    words, values, texts = layers.StringLookup(), layers.Normalization(), layers.TextVectorization()
    words.adapt(np.array(["a", "b", "c"]))
    values.adapt(np.array([[1.0], [2.0], [4.0]]))
    texts.adapt(["hello you", "you there"])
    word, value = keras.Input((1,), dtype="string"), keras.Input((1,))
    text = keras.Input((1,), dtype="string")
    embedded = layers.Flatten()(layers.Embedding(9, 3)(words(word)))
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(9, 2)(texts(text)))
    joined = layers.Concatenate()([embedded, values(value), pooled])
    model = keras.Model([word, value, text], layers.Dense(2)(joined))
    twin = amp.to_float32(amp.convert_model(model, "bf16"))
    inputs = [
        tf.constant([["c"], ["x"]]),
        tf.constant([[1.0], [5.0]]),
        tf.constant([["you"], ["hello"]]),
    ]
    assert bits(prediction(twin, inputs)) == bits(prediction(model, inputs))


class WithTensorFlowState(layers.Layer):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.count = tf.Variable(0.0, trainable=False)

    def call(self, inputs: Any) -> Any:
        return inputs + tf.cast(self.count, inputs.dtype)


def test_variables_of_tensorflow_go_on() -> None:
    model = keras.Sequential([keras.Input((1,)), WithTensorFlowState()])
    model.layers[0].count.assign(3.0)
    twin = amp.convert_model(model, "bf16")
    assert float(twin.layers[0].count) == 3.0
    twin.layers[0].count.assign(4.0)
    assert float(model.layers[0].count) == 3.0


def test_the_states_of_a_stateful_rnn_go_on() -> None:
    rnn = layers.LSTM(3, stateful=True)
    model = keras.Sequential([keras.Input(batch_shape=(2, 3, 4)), rnn])
    data = np.random.default_rng(0).random((2, 3, 4), "float32")
    fresh = bits(prediction(model, data))
    twin = amp.to_float32(amp.convert_model(model, "bf16"))
    expected = bits(prediction(model, data))
    assert bits(prediction(twin, data)) == expected != fresh


def test_a_shared_layer_stays_one_layer() -> None:
    model = shared_layer()
    twin = amp.convert_model(model, "bf16")
    assert twin.get_layer("shared") is twin.get_layer("inner").get_layer("shared")
    assert len(twin.weights) == len(model.weights) == 4


def test_layers_shared_both_ways_are_called_in_the_same_order() -> None:
    first, second = keras.Input((4,)), keras.Input((4,))
    bent, plain = layers.Dense(4, activation="tanh", name="bent"), layers.Dense(4, name="plain")
    encoder = keras.Model(first, bent(plain(first)), name="encoder")
    decoder = keras.Model(second, plain(bent(second)), name="decoder")
    inputs = keras.Input((4,))
    outputs = [decoder(encoder(bent(inputs))), encoder(plain(encoder(inputs)))]
    model = keras.Model(inputs, outputs)
    twin = amp.to_float32(amp.convert_model(model, "fp16"))
    data = np.random.default_rng(0).random((3, 4), "float32")
    assert bits(prediction(twin, data)) == bits(prediction(model, data))
    again = amp.to_float32(twin)
    assert bits(prediction(again, data)) == bits(prediction(model, data))


class BuiltByItsCall(keras.Model):
    """Its `build` makes nothing, so that no config can build it."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dense = layers.Dense(2)

    def build(self, input_shape: Any) -> None:
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)


def test_a_model_that_only_a_call_builds_is_built() -> None:
    model = BuiltByItsCall()
    model(np.ones((1, 3), "float32"))
    twin = amp.convert_model(model, "bf16")
    assert bits(twin.get_weights()) == bits(model.get_weights())
    assert prediction(twin, np.ones((1, 3), "float32")).dtype == "bfloat16"


def test_functions_and_classes_of_a_model_need_not_be_registered() -> None:
    def squash(inputs: Any) -> Any:
        return keras.ops.tanh(inputs)

    class Half(keras.regularizers.Regularizer):
        def __call__(self, weight: Any) -> Any:
            return 0.5 * keras.ops.sum(weight)

        def get_config(self) -> dict[str, Any]:
            return {}

    dense = layers.Dense(2, activation=squash, kernel_regularizer=Half())
    bent = layers.Activation(lambda x: keras.ops.relu(x) + 1)
    model = keras.Sequential([keras.Input((3,)), dense, bent])
    twin = amp.to_float32(amp.convert_model(model, "bf16"))
    data = np.random.default_rng(0).random((3, 3), "float32")
    assert bits(prediction(twin, data)) == bits(prediction(model, data))
    assert bits(twin.losses) == bits(model.losses)


def test_lambdas_of_equal_code_keep_their_own_values() -> None:
    def scaled(factor: float) -> keras.layers.Layer:
        return layers.Lambda(lambda x: x * factor)

    model = keras.Sequential([keras.Input((1,)), scaled(2.0), scaled(5.0)])
    twin = amp.convert_model(model, "bf16")
    assert float(prediction(twin, np.ones((1, 1), "float32"))[0, 0]) == 10.0
    assert [one.function for one in twin.layers] == [one.function for one in model.layers]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_file_of_the_twin_gives_the_twin(tmp_path: Any, precision: str) -> None:
    model = built(shared_layer, "mixed_float16")
    twin = amp.convert_model(model, precision)
    twin.save(tmp_path / "twin.keras")
    loaded = amp.load_model(tmp_path / "twin.keras")
    assert policies(loaded) == policies(twin)
    data = np.random.default_rng(0).random((3, 4), "float32")
    assert bits(prediction(loaded, data)) == bits(prediction(twin, data))


def test_weights_without_names_are_copied_in_order() -> None:
    class Scale(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.scale = self.add_weight(shape=(shape[-1],), initializer="random_normal")
            self.shift = self.add_weight(shape=(shape[-1],), initializer="random_normal")

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale + self.shift

    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((4,)), Scale(), keras.layers.Dense(2)])
    twin = amp.to_float32(model)
    pairs = zip(model.get_weights(), twin.get_weights(), strict=True)
    assert all(np.array_equal(old, new) for old, new in pairs)
