"""Pins on models as people write them."""

import gc
import os
import subprocess
import sys
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tf_amp_kit as amp
from tests.precision.pinning import models


@pytest.fixture(autouse=True)
def _mixed():
    keras.config.set_dtype_policy("mixed_bfloat16")


def test_a_layer_pinned_because_of_another_is_looked_at_too():
    @keras.saving.register_keras_serializable("pinning_tests")
    class Plus(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(autocast=False, **kwargs)

        def call(self, x, y):
            return tf.add(x, y)

    inputs = keras.Input((5, 4))
    attention = layers.MultiHeadAttention(2, 2, name="attention")(inputs, inputs)
    both = Plus(name="plus")(attention, layers.Dense(4, name="beside")(inputs))
    model = keras.Model(inputs, layers.Dense(2)(both))
    with pytest.raises(amp.errors.PinError, match="cannot take its float32 result"):
        amp.pin_float32(model, "attention/softmax")
    assert models.in_float32(model) == set()
    model(np.ones((2, 5, 4), "float32"))


def test_a_model_around_one_that_was_pinned_alone_follows_when_it_is_pinned():
    generator = keras.Sequential([keras.Input((4,)), layers.Dense(4)], name="generator")
    discriminator = keras.Sequential(
        [keras.Input((4,)), layers.Dense(1, activation="sigmoid")], name="discriminator"
    )
    noise = keras.Input((4,))
    gan = keras.Model(noise, discriminator(generator(noise)))
    x = np.ones((2, 4), "float32")
    gan.predict(x, verbose=0)
    amp.pin_float32(discriminator)
    amp.pin_float32(gan)
    assert gan.predict(x, verbose=0).dtype == "float32"
    assert gan.outputs[0].dtype == "float32"


def test_a_custom_layer_around_a_pinned_one_is_recorded_as_it_returns():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, models.Passing(name="block")(inputs))
    assert amp.pin_float32(model).paths == (
        "block/norm",
        "block/dense",
    )
    assert (model.outputs[0].dtype, model(np.ones((2, 4))).dtype.name) == ("float32", "float32")


def test_a_model_around_of_layers_that_is_pinned_whole_is_kept_by_plain_keras():
    inner = keras.Sequential([layers.Dense(3), layers.Dense(2, activation="softmax")])
    model = keras.Sequential([keras.Input((5, 4)), layers.TimeDistributed(inner)])
    assert [pin.in_files for pin in amp.pin_float32(model).pins] == ["plain Keras"]


def test_a_path_with_characters_of_patterns_names_its_layer():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(4, name="d(1)")(inputs))
    assert amp.pin_float32(model, "d(1)").paths == ("d(1)",)


def test_a_model_that_is_pinned_as_a_whole_is_not_called_stale():
    model = keras.Sequential([keras.Input((5, 4)), layers.Bidirectional(layers.LSTM(3))])
    amp.pin_float32(model)
    assert amp.audit_layer_dtypes(model, verbose=0).findings == ()


@pytest.mark.filterwarnings("ignore:Layer 'needs_batch_size' looks like:UserWarning")
@pytest.mark.filterwarnings("ignore:`build.*` was called on layer 'needs_batch:UserWarning")
def test_a_sequential_model_whose_shapes_keras_could_not_infer_is_pinned():
    class NeedsBatchSize(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(4)

        def call(self, inputs):
            if inputs.shape[0] is None:
                raise NotImplementedError
            return self.dense(inputs)

    model = keras.Sequential([keras.Input((4,)), NeedsBatchSize(), layers.Dense(2, name="head")])
    model(np.ones((8, 4), "float32"))
    assert amp.pin_float32(model).paths == ("head",)


def test_pins_work_under_a_distribution_strategy():
    devices = tf.config.list_logical_devices("CPU")
    with tf.distribute.MirroredStrategy([devices[0].name]).scope():
        model = models.chain(layers.Dense(4), activation=None)
        model.compile(keras.optimizers.SGD(0.1), "mse")
    amp.pin_float32(model)
    model.fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)
    assert model.predict(np.ones((4, 4)), verbose=0).dtype == "float32"


def test_an_output_that_is_no_layers_is_pinned_up_to_its_layer():
    inputs = keras.Input((4,))
    hidden = layers.Dense(4, name="body")(inputs)
    model = keras.Model(inputs, ops.softmax(layers.Dense(2, name="logits")(hidden) * 3.0))
    assert amp.pin_float32(model).paths == ("logits",)
    assert model.outputs[0].dtype == "float32"


def test_a_model_that_returns_its_input_has_nothing_to_pin():
    inputs = keras.Input((4,))
    model = keras.Model(inputs, {"same": inputs, "flat": layers.Dense(4, dtype="float32")(inputs)})
    assert amp.pin_float32(model).paths == ()


def test_code_that_only_predict_runs_is_looked_at_too():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.body, self.unit = layers.Dense(4), layers.UnitNormalization()
            self.head = layers.Dense(2)

        def call(self, inputs, training=False):
            hidden = self.body(inputs)
            unit = self.unit(hidden)
            return self.head(unit if training else unit + hidden)

    model = Net()
    model(np.ones((2, 4), "float32"))
    pins = amp.pin_float32(model)
    assert pins.paths == ("head",)
    assert pins.remarks[0].startswith("Left in half: unit, or the model raises: ")
    model(np.ones((2, 4), "float32"))


def test_pins_may_be_set_and_undone_while_fit_runs():
    class Switching(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                self.pins = amp.pin_float32(self.model)
            elif epoch == 2:
                self.pins.undo()

    model = models.chain(layers.Dense(4))
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 4)), np.ones((4, 2)), epochs=3, verbose=0, callbacks=[Switching()])
    assert models.in_float32(model) == set()


@keras.saving.register_keras_serializable("pinning_tests")
class Backbone(keras.Model):
    """A graph model that its constructor makes."""

    def __init__(self, units=4, **kwargs):
        inputs = keras.Input((4,))
        hidden = layers.Softmax(name="softmax")(layers.Dense(units, name="body")(inputs))
        super().__init__(inputs, layers.Dense(2, name="head")(hidden), **kwargs)
        self.units = units

    def get_config(self):
        return {"units": self.units, "name": self.name}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def test_a_graph_that_a_constructor_makes_is_not_kept_and_that_is_told():
    for model in (Backbone(), keras.Sequential([keras.Input((4,)), Backbone(name="inner")])):
        pins = amp.pin_float32(model, ".*softmax")
        assert [pin.in_files for pin in pins.pins] == ["not kept"]


def test_looking_leaves_what_user_code_counts():
    class Counting(layers.Layer):
        def __init__(self):
            super().__init__(name="counting")
            self.count = 0

        def call(self, inputs):
            self.count += 1
            return inputs

    layer = Counting()
    model = models.chain(layers.Dense(4), layer)
    before = layer.count
    amp.pin_float32(model, "counting").undo()
    assert layer.count == before


def test_layers_that_left_the_model_go_back_too():
    model = models.chain(layers.Dense(4))
    pins = amp.pin_float32(model)
    head = model.layers[-1]
    model.pop()
    pins.undo()
    assert head.compute_dtype == "bfloat16"


def test_a_call_with_an_optional_argument_takes_inputs_by_name():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.body, self.head = layers.Dense(4), layers.Dense(2)

        def call(self, first, second=None):
            hidden = self.body(first)
            return self.head(hidden + ops.cast(second, hidden.dtype))

    model, x = Net(), np.ones((8, 4), "float32")
    model(x, second=x)
    pins = amp.pin_float32(model, "head")
    assert pins.remarks[0].startswith("Nobody looked whether code around these pins")
    pins.undo()
    assert amp.pin_float32(model, inputs={"first": x, "second": x}).paths == ("head",)


def test_pins_on_a_model_that_is_not_built_say_that_nobody_looked():
    model = keras.Sequential([layers.Dense(4, name="body"), layers.Dense(2)])
    (remark,) = amp.pin_float32(model, "body").remarks
    assert remark.startswith("Nobody looked whether code around these pins can take them: ")


def codes(model):
    return {one.code for one in amp.audit_layer_dtypes(model, verbose=0).findings}


def test_after_undo_the_audit_asks_for_the_level_again():
    with amp.amp_scope("bf16"):
        model = models.chain(layers.Dense(4))
        amp.pin_float32(model).undo()
        assert "AMP108" in codes(model)


def test_an_audit_asks_for_what_a_higher_level_pins_besides():
    with amp.amp_scope("bf16", level="O2"):
        model = models.chain(layers.Dense(4), layers.UnitNormalization())
        amp.pin_float32(model)
        assert "AMP108" not in codes(model)
    with amp.amp_scope("bf16", level="O1"):
        assert "AMP108" in codes(model)


def test_an_audit_does_not_ask_for_what_had_to_be_left():
    with amp.amp_scope("bf16"):
        model = keras.Sequential([keras.Input((4,)), models.Residual(name="block")])
        assert "AMP108" in codes(model)
        amp.pin_float32(model)
        assert "AMP108" not in codes(model)
        amp.pin_float32(model, "block").undo()
        assert "AMP108" not in codes(model)
        assert "AMP108" not in codes(amp.convert_model(model, "bf16"))


def test_a_second_call_answers_for_what_the_first_one_pinned():
    model = models.chain(layers.Dense(4))
    amp.pin_float32(model)
    again = amp.pin_float32(model)
    assert [(pin.path, pin.reason) for pin in again.pins] == [("head", "softmax of an output")]
    again.undo()
    assert models.in_float32(model) == set()


def test_a_second_call_does_not_answer_for_what_somebody_named():
    model = models.chain(layers.Dense(4, name="body"))
    amp.pin_float32(model, "body")
    assert amp.pin_float32(model).paths == ("head",)


def test_a_block_that_a_second_call_pins_whole_stands_for_what_it_holds():
    class Losing(models.Passing):
        loses = False

        def call(self, inputs):
            if self.loses:
                self.add_loss(ops.mean(ops.square(inputs)))
            return super().call(inputs)

    with amp.amp_scope("bf16", level="O2"):
        model = keras.Sequential([keras.Input((4,)), Losing(name="block")])
        assert amp.pin_float32(model).paths == ("block/dense",)
        model.get_layer("block").loses = True
        pins = amp.pin_float32(model)
    assert pins.paths == ("block",)
    pins.undo()
    assert models.in_float32(model) == set()


@pytest.mark.parametrize("target", ["object", "class"])
def test_a_subclassed_model_is_pinned_with_its_own_code_and_weights(target):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.head = layers.Dense(4)
            self.scale = self.add_weight(shape=(), initializer="ones")

        def call(self, inputs):
            return self.head(inputs * self.scale)

    model, years = Net(), np.array([[2011.0, 2013.0]], "float32")
    model(years)
    assert amp.pin_float32(model, model if target == "object" else Net).paths == ("",)
    kernel = model.head.kernel.numpy()
    np.testing.assert_allclose(model.predict(years, verbose=0), years @ kernel, rtol=1e-6)


def test_a_pinned_model_is_freed_as_any_other():
    model = models.chain(layers.Dense(4), models.Forgetting(name="block"))
    pins = amp.pin_float32(model, "block/norm", "head")
    amp.enable_amp("bf16", pins=pins)
    alive = [weakref.ref(model), *map(weakref.ref, model.layers)]
    del model, pins
    keras.utils.clear_session()
    gc.collect()
    assert [reference() for reference in alive] == [None] * len(alive)


PRINT_PINS = """
import keras, tf_amp_kit as amp
keras.config.set_dtype_policy("mixed_bfloat16")
inputs = [keras.Input((1,), name=f"i{n}") for n in range(4)]
moved = [keras.layers.Reshape((1,), name=f"r{n}")(one) for n, one in enumerate(inputs)]
scaled = keras.layers.Rescaling(0.5)(keras.layers.Concatenate()(moved))
model = keras.Model(inputs, [keras.layers.Dense(1, name=f"d{n}")(scaled) for n in range(4)])
print(amp.pin_float32(model).paths)
"""


def test_the_order_of_pins_is_that_of_the_layers_in_every_process():
    printed = {
        subprocess.run(
            [sys.executable, "-c", PRINT_PINS],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    reshapes, denses = (", ".join(f"'{kind}{n}'" for n in range(4)) for kind in "rd")
    assert printed == {f"({reshapes}, 'concatenate', 'rescaling', {denses})\n"}
