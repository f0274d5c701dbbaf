"""Layers that half precision makes fail: pinned and called again, or left to raise."""

from __future__ import annotations

import re
import threading
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tf_amp_kit.errors import ConflictWarning, PrecisionError
from tf_amp_kit.tracing.paths import LayerPaths

KERAS_CALL = layers.Layer.__call__


@pytest.fixture(autouse=True)
def keras_is_left_alone():
    yield
    assert layers.Layer.__call__ is KERAS_CALL


@keras.saving.register_keras_serializable("tests_on_conflict")
class TimesOnes(layers.Layer):
    """Multiplies by a float32 constant, which TensorFlow's operator refuses in half."""

    def call(self, x):
        return x * tf.ones([4])


class FailsInTraining(layers.Layer):
    def call(self, x, training=False):
        return x * tf.ones([4]) if training else x


class Block(layers.Layer):
    """Adds a float32 constant to what its last layer returns."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.last = layers.Dense(4), layers.Dense(4)

    def build(self, shape):
        self.first.build(shape)
        self.last.build((None, 4))

    def call(self, x):
        return self.last(self.first(x)) + tf.ones([4])


def net(*inner, size=4):
    inputs = keras.Input((size,))
    x = layers.Dense(4, name="before")(inputs)
    for layer in inner:
        x = layer(x)
    return keras.Model(inputs, layers.Dense(1, name="after")(x), name="net")


def policies(model):
    return {path: layer.compute_dtype for path, layer in LayerPaths(model) if path}


def curing(precision="bf16"):
    return amp.amp_scope(precision, on_conflict="float32")


def test_without_it_the_error_is_the_users():
    with amp.amp_scope("bf16"), pytest.raises(Exception, match="float32"):
        net(TimesOnes())


@pytest.mark.parametrize(("precision", "half"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_a_layer_that_fails_while_the_model_is_built_is_pinned_alone(precision, half):
    with pytest.warns(ConflictWarning), curing(precision):
        model = net(TimesOnes(name="clash"))
    assert policies(model) == {"before": half, "clash": "float32", "after": half}
    assert amp.Pins.on(model).by_path() == {
        "clash": {"layer_class": "TimesOnes", "reason": f"float32 and {half} meet in Mul"}
    }


def test_one_warning_lists_them_all_at_the_line_of_the_block():
    with pytest.warns(ConflictWarning) as caught, curing():
        net(TimesOnes(name="a"), TimesOnes(name="b"))
    (one,) = [one for one in caught if one.category is ConflictWarning]
    assert one.filename == __file__
    assert str(one.message) == (
        "2 layers fail in half precision, and are pinned in float32: "
        "a (TimesOnes, float32 and bfloat16 meet in Mul), "
        "b (TimesOnes, float32 and bfloat16 meet in Mul). "
        "`tf_amp_kit.Pins.on(model)` has the pins, to print, save or undo."
    )


def test_nothing_is_said_where_nothing_fails():
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConflictWarning)
        with curing():
            assert amp.Pins.on(net()).paths == ()


def test_of_a_composite_the_sublayer_is_pinned_whose_result_does_not_fit():
    with pytest.warns(ConflictWarning), curing():
        model = net(Block())
    assert amp.Pins.on(model).paths == ("block/last",)
    assert policies(model)["block/first"] == "bfloat16"


def test_a_composite_is_pinned_whole_where_no_sublayer_cures_it():
    class Early(Block):
        def call(self, x):
            return self.last(self.first(x * tf.ones([4])))

    with pytest.warns(ConflictWarning), curing():
        model = net(Early(name="early"))
    assert amp.Pins.on(model).paths == ("early",)
    assert set(policies(model)) >= {"early/first", "early/last"}
    assert {policies(model)[path] for path in ("early", "early/first", "early/last")} == {"float32"}


def test_a_cured_model_computes_what_the_same_one_pinned_by_hand_does():
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    with pytest.warns(ConflictWarning), curing():
        cured = net(TimesOnes(name="clash"))
    with amp.amp_scope("bf16"):
        by_hand = net(TimesOnes(name="clash", dtype="float32"))
    by_hand.set_weights(cured.get_weights())
    np.testing.assert_array_equal(cured(x), by_hand(x))


def test_what_fails_in_training_alone_is_pinned_by_the_first_fit():
    with pytest.warns(ConflictWarning), curing():
        model = net(FailsInTraining(name="clash"))
        assert amp.Pins.on(model).paths == ()
        model.compile("sgd", "mse")
        history = model.fit(np.ones((4, 4)), np.ones((4, 1)), epochs=2, verbose=0)
    assert amp.Pins.on(model).paths == ("clash",)
    assert np.isfinite(history.history["loss"]).all()


def test_what_fails_in_a_loop_of_ones_own_is_pinned_too():
    with pytest.warns(ConflictWarning), curing():
        model = net(FailsInTraining(name="clash"))

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.cast(model(x, training=True), tf.float32))
            return tape.gradient(loss, model.trainable_variables)

        assert len(step(tf.ones((2, 4)))) == 4
    assert amp.Pins.on(model).paths == ("clash",)


def test_statistics_move_once_a_step_although_a_layer_failed_behind_them():
    class NormThenClash(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.norm = layers.BatchNormalization()

        def build(self, shape):
            self.norm.build(shape)

        def call(self, x, training=False):
            x = self.norm(x, training=training)
            return tf.square(x) * tf.ones([4]) if training else x

    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")

    def trained(scope, **kwargs):
        keras.utils.set_random_seed(0)
        with scope:
            model = net(NormThenClash(name="clash", **kwargs))
            model.compile(keras.optimizers.SGD(0.0), "mse")
            model.fit(x, np.ones((8, 1)), verbose=0)
        return model.get_layer("clash").norm.moving_mean.numpy()

    with pytest.warns(ConflictWarning):
        cured = trained(curing())
    # One step from zero, with Keras's momentum of 0.99.
    before = 0.01 * trained_mean(x)
    np.testing.assert_allclose(cured, before, rtol=2e-2, atol=1e-5)


def trained_mean(x):
    """The mean that the normalization saw: of the first layer's result, in float64."""
    keras.utils.set_random_seed(0)
    dense = net().get_layer("before")
    return (x.astype("float64") @ dense.kernel.numpy().astype("float64")).mean(axis=0)


def test_an_operation_without_a_kernel_is_found_before_it_runs():
    def build():
        inputs = keras.Input((4, 4, 4, 1))
        x = layers.Conv3D(2, 3, padding="same")(inputs)
        x = layers.Flatten()(layers.MaxPooling3D(name="pool")(x))
        return keras.Model(inputs, layers.Dense(1)(x))

    x = np.ones((2, 4, 4, 4, 1), "float32")
    with pytest.warns(ConflictWarning, match="MaxPool3D has no float16 kernel"), curing("fp16"):
        trained, called = build(), build()
        trained.compile("sgd", "mse")
        trained.fit(x, np.ones((2, 1)), verbose=0)
        called(x)
    assert amp.Pins.on(trained).paths == amp.Pins.on(called).paths == ("pool",)


def test_a_build_that_failed_half_way_is_made_once():
    class FailsInBuild(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(4,), initializer="ones", name="scale")
            tf.cast(self.scale.value, self.compute_dtype) * tf.ones([4])
            self.shift = self.add_weight(shape=(4,), name="shift")

        def call(self, x):
            return x * self.scale + self.shift

    with pytest.warns(ConflictWarning), curing():
        model = net(FailsInBuild(name="clash"))
    assert [one.name for one in model.get_layer("clash").weights] == ["scale", "shift"]


def test_an_error_that_float32_does_not_cure_stays_and_pins_nothing():
    class Broken(layers.Layer):
        def call(self, x):
            raise ValueError("float32 and bfloat16, and no way out")

    with curing(), pytest.raises(ValueError, match="no way out"):
        layer = Broken()
        net(layer)
    assert layer.compute_dtype == "bfloat16"


def test_an_error_about_something_else_is_raised_at_once():
    calls = []

    class Other(layers.Layer):
        def call(self, x):
            calls.append(x)
            raise ValueError("nothing to do with it")

    with curing(), pytest.raises(ValueError, match="nothing to do with it"):
        net(Other())
    assert len(calls) == 1


def test_weights_that_are_stored_in_half_cannot_be_helped():
    with curing(), pytest.raises(Exception, match="float16"):
        dense = layers.Dense(4, dtype="float16")
        dense(np.ones((1, 4), "float16"))
        dense.call = lambda x: tf.matmul(x, tf.ones((4, 4))) * dense.kernel
        dense(np.ones((1, 4), "float16"))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_no_pins(stop):
    class Interrupted(layers.Layer):
        def call(self, x):
            if self.compute_dtype == "float32":
                raise stop
            return x * tf.ones([4])

    with pytest.raises(stop), curing():
        layer = Interrupted()
        net(layer)
    assert layer.compute_dtype == "bfloat16"
    assert not layer.built


def test_a_file_keeps_the_pins_and_plain_keras_opens_it(tmp_path):
    with pytest.warns(ConflictWarning), curing():
        model = net(TimesOnes(name="clash"))
    path = tmp_path / "model.keras"
    model.save(path)
    assert policies(keras.saving.load_model(path))["clash"] == "float32"
    assert policies(amp.load_model(path))["clash"] == "float32"


def test_saved_pins_are_applied_to_another_build(tmp_path):
    with pytest.warns(ConflictWarning), curing():
        model = net(FailsInTraining(name="clash"))
        model(np.ones((1, 4)), training=True)
    amp.Pins.on(model).save(tmp_path / "pins.json")
    with amp.amp_scope("bf16"):
        again = net(FailsInTraining(name="clash"))
    amp.Pins.load(tmp_path / "pins.json").apply(again)
    assert again(np.ones((1, 4)), training=True).dtype == "bfloat16"


def test_pins_are_undone():
    with pytest.warns(ConflictWarning), curing():
        model = net(FailsInTraining(name="clash"))
        model(np.ones((1, 4)), training=True)
    amp.Pins.on(model).undo()
    assert policies(model)["clash"] == "bfloat16"


def test_pin_float32_answers_for_them_as_well():
    with pytest.warns(ConflictWarning), curing():
        model = net(TimesOnes(name="clash"))
        assert amp.pin_float32(model).paths == ("clash", "after")


def test_an_audit_in_the_block_pins_nothing():
    with curing():
        model = net(FailsInTraining(name="clash"))
        report = amp.audit_layer_dtypes(model, verbose=0)
        assert "AMP107" in [one.code for one in report.findings]
    assert policies(model)["clash"] == "bfloat16"


def test_a_block_inside_may_ask_for_the_errors():
    with curing():
        with pytest.raises(Exception, match="float32"), amp.amp_scope("bf16", on_conflict="raise"):
            net(TimesOnes())
        with pytest.warns(ConflictWarning), amp.amp_scope("bf16", on_conflict="float32"):
            net(TimesOnes())


def test_a_block_inside_goes_on_with_it_if_it_says_nothing():
    with pytest.warns(ConflictWarning), curing(), amp.amp_scope("fp16"):
        assert policies(net(TimesOnes(name="clash")))["clash"] == "float32"


def test_another_thread_is_none_of_its_business():
    caught = []

    def build():
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            net(TimesOnes())
        except Exception as error:
            caught.append(error)

    with curing():
        thread = threading.Thread(target=build)
        thread.start()
        thread.join()
    assert len(caught) == 1


def test_whoever_makes_warnings_errors_gets_one_before_anything_is_trained():
    with curing(), warnings.catch_warnings():
        warnings.simplefilter("error", ConflictWarning)
        model = net(FailsInTraining(name="clash"))
        model.compile("sgd", "mse")
        with pytest.raises(ConflictWarning, match="clash"):
            model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)
    assert int(model.optimizer.iterations) == 0


def test_the_warning_says_what_keeps_more_in_half_where_layers_are_pinned_whole():
    class Net(keras.Model):
        def __init__(self, around=lambda layer: layer):
            super().__init__()
            self.first, self.second, self.last = around(TimesOnes()), layers.ReLU(), layers.ReLU()

        def call(self, x):
            x = self.first(x)
            x = x + self.second(x)
            return x + self.last(x)

    with pytest.warns(ConflictWarning, match="Net with all 3 layers in it.*Float32"), curing():
        whole = Net()
        whole(np.ones((1, 4)))
    with curing():
        wrapped = Net(amp.layers.Float32)
        wrapped(np.ones((1, 4)))
    assert set(policies(whole).values()) == {"float32"}
    assert policies(wrapped)["last"] == "bfloat16"


def test_an_unknown_way_out_is_refused():
    message = (
        "Unknown way out of a conflict. Expected one of ['raise', 'float32']. "
        "Received: on_conflict='half'."
    )
    with pytest.raises(PrecisionError, match=re.escape(message)):
        amp.amp_scope("bf16", on_conflict="half")
