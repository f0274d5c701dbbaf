"""Keras's own layers: the few that are at fault, and the many that are not."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from tf_amp_kit.inspection.audit import audit_layer_dtypes

from . import places
from .expect import Expected, check
from .faults import WIDTH

needs_reversible = pytest.mark.skipif(
    not hasattr(layers, "ReversibleEmbedding"), reason="this Keras has no ReversibleEmbedding"
)


class TiedLanguageModel(keras.Model):
    """Projects back on the embedding's matrix, as language models do."""

    def __init__(self):
        super().__init__()
        self.embedding = layers.ReversibleEmbedding(20, WIDTH)
        self.middle = layers.Dense(WIDTH)

    def call(self, inputs):
        return self.embedding(self.middle(self.embedding(inputs)), reverse=True)


def tied_functional():
    ids = keras.Input((5,), dtype="int32")
    embedding = layers.ReversibleEmbedding(20, WIDTH, name="embedding")
    return keras.Model(ids, embedding(layers.Dense(WIDTH)(embedding(ids)), reverse=True))


def tied_subclassed():
    model = TiedLanguageModel()
    model(np.zeros((2, 5), "int32"))
    return model


@needs_reversible
@pytest.mark.parametrize("build", [tied_functional, tied_subclassed])
def test_the_reverse_projection_of_an_embedding_is_wide(build, half):
    model = build()
    # The product is wide and so is what it returns: one layer, one mistake, told by
    # its output, by its product or by both.
    check(
        audit_layer_dtypes(model, verbose=0),
        (Expected(("AMP101", "AMP103"), "embedding", most=2),),
    )


@needs_reversible
def test_an_untied_reverse_projection_is_wide_too(half):
    ids = keras.Input((5,), dtype="int32")
    embedding = layers.ReversibleEmbedding(20, WIDTH, tie_weights=False, name="embedding")
    model = keras.Model(ids, embedding(embedding(ids), reverse=True))
    check(
        audit_layer_dtypes(model, verbose=0),
        (Expected(("AMP101", "AMP103"), "embedding", most=2),),
    )


@needs_reversible
def test_an_embedding_that_is_only_looked_up_is_fine(half):
    ids = keras.Input((5,), dtype="int32")
    hidden = layers.Flatten()(layers.ReversibleEmbedding(20, WIDTH)(ids))
    check(audit_layer_dtypes(keras.Model(ids, places.head()(hidden)), verbose=0))


@pytest.mark.parametrize("mode", ["one_hot", "multi_hot", "count"])
def test_category_encoding_returns_the_variables_dtype(mode, half):
    ids = keras.Input((1,), dtype="int32")
    hidden = layers.CategoryEncoding(6, output_mode=mode, name="encoding")(ids)
    model = keras.Model(ids, places.head()(layers.Dense(WIDTH)(hidden)))
    check(audit_layer_dtypes(model, verbose=0), (Expected("AMP101", "encoding"),))


def lambda_model(function, **kwargs):
    inputs = keras.Input((WIDTH,))
    hidden = layers.Lambda(function, name="scale", **kwargs)(layers.Dense(WIDTH)(inputs))
    return keras.Model(inputs, places.head()(hidden))


def scale_by_constant(tensor):
    return ops.multiply(tensor, tf.constant([2.0] * WIDTH))  # PLANTED


def scale_by_conflicting_constant(tensor):
    return tensor * tf.constant([2.0] * WIDTH)  # PLANTED


def scale_by_array(tensor):
    return tensor * np.full(WIDTH, 2.0, "float32")


def test_a_lambda_over_a_constant_is_flagged(half):
    report = audit_layer_dtypes(lambda_model(scale_by_constant), verbose=0)
    check(report, (Expected("AMP101", "scale", planted=scale_by_constant),))


def test_a_lambda_that_multiplies_by_a_constant_is_a_conflict(half):
    model = lambda_model(scale_by_conflicting_constant, output_shape=(WIDTH,))
    expected = Expected("AMP107", "scale", planted=scale_by_conflicting_constant)
    check(audit_layer_dtypes(model, verbose=0), (expected,))


def test_a_lambda_over_an_array_is_not_flagged(half):
    check(audit_layer_dtypes(lambda_model(scale_by_array), verbose=0))


VECTOR, SEQUENCE, IMAGE = (WIDTH,), (5, WIDTH), (8, 8, 4)
CORRECT = {
    "dropout": (VECTOR, lambda: layers.Dropout(0.2)),
    "gaussian noise": (VECTOR, lambda: layers.GaussianNoise(0.1)),
    "gaussian dropout": (VECTOR, lambda: layers.GaussianDropout(0.1)),
    "batch normalization": (VECTOR, lambda: layers.BatchNormalization()),
    "layer normalization": (VECTOR, lambda: layers.LayerNormalization()),
    "group normalization": (IMAGE, lambda: layers.GroupNormalization(2)),
    "root mean square normalization": (VECTOR, lambda: layers.RMSNormalization()),
    "softmax": (VECTOR, lambda: layers.Softmax()),
    "leaky relu": (VECTOR, lambda: layers.LeakyReLU()),
    "parametric relu": (VECTOR, lambda: layers.PReLU()),
    "gelu": (VECTOR, lambda: layers.Activation("gelu")),
    "rescaling": (IMAGE, lambda: layers.Rescaling(1 / 255, 0.5)),
    "convolution": (IMAGE, lambda: layers.Conv2D(4, 3, activation="relu")),
    "separable convolution": (IMAGE, lambda: layers.SeparableConv2D(4, 3)),
    "transposed convolution": (IMAGE, lambda: layers.Conv2DTranspose(4, 3)),
    "average pooling": (IMAGE, lambda: layers.AveragePooling2D(2)),
    "global average pooling": (IMAGE, lambda: layers.GlobalAveragePooling2D()),
    "upsampling": (IMAGE, lambda: layers.UpSampling2D()),
    "LSTM": (SEQUENCE, lambda: layers.LSTM(4, return_sequences=True)),
    "GRU with dropout": (SEQUENCE, lambda: layers.GRU(4, dropout=0.1, recurrent_dropout=0.1)),
    "simple RNN": (SEQUENCE, lambda: layers.SimpleRNN(4)),
    "RNN over cells": (
        SEQUENCE,
        lambda: layers.RNN([layers.LSTMCell(4), layers.GRUCell(4)], return_sequences=True),
    ),
    "bidirectional": (SEQUENCE, lambda: layers.Bidirectional(layers.LSTM(4))),
    "time distributed": (SEQUENCE, lambda: layers.TimeDistributed(layers.Dense(4))),
    "convolutional LSTM": ((3, *IMAGE), lambda: layers.ConvLSTM2D(2, 3)),
    "einsum dense": (SEQUENCE, lambda: layers.EinsumDense("abc,cd->abd", (5, 4))),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_layers_are_not_flagged(name, half):
    shape, make = CORRECT[name]
    inputs = keras.Input(shape)
    hidden = layers.Flatten()(make()(layers.Dense(shape[-1])(inputs)))
    check(audit_layer_dtypes(keras.Model(inputs, places.head()(hidden)), verbose=0))


# The layer, and how often its code limits 1 / norm to what float16 cannot hold.
BOUNDED = {
    "unit normalization": (lambda: layers.UnitNormalization(name="bounded"), 1),
    "spectral normalization": (
        lambda: layers.SpectralNormalization(layers.Dense(WIDTH), name="bounded"),
        2,
    ),
}


def bounded_model(make):
    inputs = keras.Input(VECTOR)
    return keras.Model(inputs, places.head()(make()(inputs)))


@pytest.mark.parametrize("name", BOUNDED)
def test_a_bound_of_the_norm_that_overflows_float16_is_flagged(name):
    make, most = BOUNDED[name]
    keras.config.set_dtype_policy("mixed_float16")
    report = audit_layer_dtypes(bounded_model(make), verbose=0)
    check(report, (Expected("AMP204", "bounded", says=("becomes inf",), most=most),))


def test_unit_normalization_of_zeros_is_nan_in_float16():
    keras.config.set_dtype_policy("mixed_float16")
    with np.errstate(over="ignore"):
        outputs = layers.UnitNormalization()(np.zeros((1, 4), "float32"))
    assert np.isnan(np.asarray(outputs, np.float32)).all()


@pytest.mark.parametrize("name", BOUNDED)
def test_the_same_bound_is_fine_in_bfloat16(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    check(audit_layer_dtypes(bounded_model(BOUNDED[name][0]), verbose=0))


class LayerScale(layers.Layer):
    """ConvNeXt's: a weight that autocast does narrow."""

    def build(self, input_shape):
        self.gamma = self.add_weight(
            shape=(input_shape[-1],), initializer=keras.initializers.Constant(1e-6), name="gamma"
        )

    def call(self, inputs):
        return inputs * self.gamma


def test_layer_scale_is_not_flagged(half):
    check(audit_layer_dtypes(places.in_functional(LayerScale), verbose=0))


def test_masked_pooling_is_not_flagged(half):
    ids = keras.Input((5,), dtype="int32")
    hidden = layers.Embedding(11, WIDTH, mask_zero=True)(ids)
    hidden = layers.GlobalAveragePooling1D()(hidden)
    check(audit_layer_dtypes(keras.Model(ids, places.head()(hidden)), verbose=0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.MultiHeadAttention(2, 4, dropout=0.1),
        lambda: layers.GroupQueryAttention(4, 2, 1),
        lambda: layers.Attention(use_scale=True),
        lambda: layers.AdditiveAttention(),
    ],
    ids=["multi-head", "grouped", "dot product", "additive"],
)
def test_attention_is_not_flagged(make, half):
    inputs = keras.Input(SEQUENCE)
    hidden = layers.Dense(WIDTH)(inputs)
    attention = make()
    name = type(attention).__name__
    is_list = name in ("Attention", "AdditiveAttention")
    hidden = attention([hidden, hidden]) if is_list else attention(hidden, hidden)
    model = keras.Model(inputs, places.head()(layers.GlobalAveragePooling1D()(hidden)))
    check(audit_layer_dtypes(model, verbose=0))


def test_a_float32_layer_by_its_own_choice_is_not_flagged(half):
    inputs = keras.Input((WIDTH,))
    hidden = layers.Dense(WIDTH, dtype="float32")(layers.Dense(WIDTH)(inputs))
    report = audit_layer_dtypes(
        keras.Model(inputs, places.head()(layers.Dense(8)(hidden))), verbose=0
    )
    check(report)
