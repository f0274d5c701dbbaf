"""Losses that layers add in half precision: `fit` trains, or it is told before."""

import re

import keras
import numpy as np
import pytest
from keras import layers, ops

import tf_amp_kit as amp


@pytest.fixture(autouse=True)
def _mixed(half):
    keras.config.set_dtype_policy(f"mixed_{half}")


class Adding(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(4)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, inputs):
        hidden = self.dense(inputs)
        self.add_loss(0.1 * ops.mean(ops.square(hidden)))
        return hidden


def chain(*between, shape=(4,)):
    model = keras.Sequential([keras.Input(shape), *between, layers.Flatten(), layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


BUILDERS = {
    "an activity regularizer": lambda: chain(layers.Dense(4, activity_regularizer="l2")),
    "ActivityRegularization": lambda: chain(layers.ActivityRegularization(l2=0.1)),
    "a regularizer in attention": lambda: attentive(),
    "a regularizer in an LSTM": lambda: chain(
        layers.LSTM(3, activity_regularizer="l2"), shape=(5, 4)
    ),
    "a regularizer in a nested model": lambda: chain(
        keras.Sequential([keras.Input((4,)), layers.Dense(3, activity_regularizer="l2")])
    ),
    "add_loss in a user's block": lambda: chain(Adding()),
}


def attentive():
    inputs = keras.Input((5, 4))
    attention = layers.MultiHeadAttention(2, 2, activity_regularizer=keras.regularizers.L2(0.1))
    model = keras.Model(inputs, layers.Dense(2)(layers.Flatten()(attention(inputs, inputs))))
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("case", BUILDERS)
def test_fit_trains_with(case, level, half):
    with amp.amp_scope(half, level=level):
        model = BUILDERS[case]()
        x = np.random.default_rng(0).normal(size=(8, *model.input_shape[1:])).astype("float32")
        y = np.ones((8, 2), "float32")
        with pytest.raises(TypeError):
            model.fit(x, y, verbose=0)
        amp.pin_float32(model)
    loss = model.evaluate(x, y, verbose=0)
    history = model.fit(x, y, epochs=3, verbose=0)
    assert np.isfinite(loss)
    assert history.history["loss"][-1] < history.history["loss"][0]
    codes = {one.code for one in amp.audit_layer_dtypes(model, verbose=0).findings}
    assert "AMP303" not in codes


def test_the_loss_is_what_float32_gives(half):
    weights, losses = None, []
    for policy in (f"mixed_{half}", "float32"):
        keras.config.set_dtype_policy(policy)
        model = keras.Sequential([keras.Input((4,)), layers.Dense(4, activity_regularizer="l2")])
        model.compile("sgd", "mse")
        weights = weights or model.get_weights()
        model.set_weights(weights)
        amp.pin_float32(model)
        losses.append(model.evaluate(np.ones((8, 4)), np.ones((8, 4)), verbose=0))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_loss_that_a_models_own_code_adds_is_told_with_its_line():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.body, self.head = layers.Dense(4), layers.Dense(2)

        def build(self, shape):
            self.body.build(shape)
            self.head.build((None, 4))
            self.built = True

        def call(self, inputs):
            hidden = self.body(inputs)
            self.add_loss(ops.mean(ops.square(hidden)))
            return self.head(hidden)

    model = Net()
    model.build((None, 4))
    message = "`fit` will raise TypeError: the model adds a loss in "
    with pytest.warns(amp.errors.PinWarning, match=re.escape(message)) as caught:
        pins = amp.pin_float32(model)
    assert {warning.filename for warning in caught} == {__file__}
    assert "test_losses.py:" in pins.remarks[0]
    assert 'ops.cast(loss, "float32")' in pins.remarks[0]


def test_such_a_loss_of_a_pinned_layers_result_is_float32_and_not_told():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.body, self.head = layers.Dense(4), layers.Dense(2)

        def call(self, inputs):
            hidden = self.body(inputs)
            self.add_loss(ops.mean(ops.square(hidden)))
            return self.head(hidden)

    model = Net()
    model(np.ones((2, 4), "float32"))
    assert "adds a loss" not in str(amp.pin_float32(model, "body"))


@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.PureHalfWarning")
def test_a_level_that_pins_nothing_tells_of_the_loss(half):
    with amp.amp_scope(half, level="O3"):
        model = chain(layers.Dense(4, activity_regularizer="l2"))
        with pytest.warns(amp.errors.PinWarning, match="`fit` will raise TypeError: dense adds"):
            amp.pin_float32(model)
