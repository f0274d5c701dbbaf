"""Calls of all kinds, some of which fail in half precision."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.precision.failing_layers import Holding, Model, Normalizing, TimesOnes, X, curing, dtypes
from tf_amp_kit.errors import ConflictWarning

pytestmark = pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.ConflictWarning")


class Product(layers.Layer):
    """Multiplies what a layer of its own returns by a float32 constant."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(4)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x) * tf.ones([4])


class InFunction(Holding):
    """Runs what it holds in a function of its own, which TensorFlow keeps."""

    @tf.function
    def call(self, x):
        return tf.identity(self.inner(x, training=True))


class Passing(Holding):
    def call(self, x):
        return self.inner(x, training=True)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_weights_keep_every_bit(precision):
    with curing(precision):
        model = Model(Product())
        model.inner.build((None, 4))
        dense = model.inner.dense
        dense.kernel.assign(1e-6 * np.pi * (1 + np.arange(16).reshape(4, 4)))
        before = dense.kernel.numpy()
        model(X)
    assert dense.compute_dtype == "float32"
    np.testing.assert_array_equal(dense.kernel.numpy(), before)


@pytest.mark.parametrize("case", ["eager", "graph", "fit", "fit, eagerly", "fit, compiled"])
def test_a_function_inside_of_a_layer_keeps_nothing_that_failed(case):
    with curing():
        layer = InFunction()
        layer.build((None, 4))
        model = Model(layer)
        if case.startswith("fit"):
            how = {"run_eagerly": "eagerly" in case, "jit_compile": "compiled" in case}
            model.compile(keras.optimizers.SGD(0.0), "mse", **how)
            for _ in range(2):
                model.fit(X, X, batch_size=8, verbose=0)
        else:
            call = tf.function(model) if case == "graph" else model
            for _ in range(2):
                call(X)
    np.testing.assert_allclose(layer.inner.share, 0.75, rtol=1e-3)
    assert dtypes(model)["inner/inner/norm"] == "float32"


def test_a_branch_inside_of_a_function_of_a_layer():
    class Branching(Holding):
        @tf.function
        def call(self, x):
            return tf.cond(
                tf.reduce_sum(x) > 0,
                lambda: tf.cast(self.inner(x, training=True), tf.float32),
                lambda: tf.cast(x, tf.float32),
            )

    with curing():
        layer = Branching()
        layer.build((None, 4))
        for _ in range(2):
            layer(X)
    np.testing.assert_allclose(layer.inner.share, 0.75, rtol=1e-3)


def test_a_model_that_is_built_while_a_function_is_traced():
    built = []

    @tf.function
    def call(x):
        inputs = keras.Input((4,))
        built.append(keras.Model(inputs, TimesOnes(name="clash")(inputs)))
        return x

    with curing():
        call(X)
    assert dtypes(built[0])["clash"] == "float32"


def test_gradients_after_a_call_that_was_made_again():
    def gradients(scope, *pinned):
        keras.utils.set_random_seed(0)
        with scope:
            model = Model(Product())
            model.inner.build((None, 4))
            if pinned:
                amp.pin_float32(model, *pinned, inputs=X)
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(model(X) ** 2)
        watched = {id(one) for one in tape.watched_variables()}
        found = tape.gradient(loss, model.trainable_variables)
        return [one.numpy() for one in found], len(watched)

    cured, num_watched = gradients(curing())
    by_hand, num_by_hand = gradients(amp.amp_scope("bf16"), "inner/dense")
    for one, other in zip(cured, by_hand, strict=True):
        np.testing.assert_array_equal(one, other)
    assert num_watched == num_by_hand


def test_variables_that_a_call_does_not_use_are_not_watched():
    class Uses(Product):
        def build(self, shape):
            super().build(shape)
            self.idle = self.add_weight(shape=(4,))

    with curing():
        layer = Uses()
        layer.build((None, 4))
        with tf.GradientTape() as tape:
            layer(X)
    assert len(tape.watched_variables()) == 2


@pytest.mark.parametrize("message", ["the sensor did not answer", "bad crop"])
def test_an_error_that_says_nothing_of_dtypes_is_raised_at_once(message):
    calls = []

    class Fails(layers.Layer):
        def call(self, x):
            scale = tf.ones([4])
            calls.append(scale)
            raise ValueError(message)

    with pytest.raises(ValueError, match=message), curing():
        Fails()(X)
    assert len(calls) == 1


def test_an_error_of_a_build_in_a_graph_is_the_users():
    class Fails(Holding):
        def build(self, shape):
            super().build(shape)
            raise KeyError("mine")

        def call(self, x):
            return self.inner(x)

    with pytest.raises(KeyError, match="mine"), curing():
        layer = Fails()
        tf.function(lambda x: layer(x))(X)


@pytest.mark.parametrize("case", ["eager", "graph", "symbolic"])
def test_what_build_puts_into_a_dictionary_is_made_once(case):
    class Heads(layers.Layer):
        def __init__(self):
            super().__init__()
            self.heads = {}

        def build(self, shape):
            if "a" not in self.heads:
                self.heads["a"] = layers.Dense(4)
                self.heads["a"].build(shape)

        def call(self, x):
            return tf.square(self.heads["a"](x)) * tf.ones([4])

    with curing():
        layer = Heads()
        if case == "symbolic":
            layer(keras.Input((4,)))
        else:
            (tf.function(lambda x: layer(x)) if case == "graph" else layer)(X)
    assert [(name, one.compute_dtype) for name, one in layer.heads.items()] == [("a", "float32")]
    assert len(layer.weights) == 2


def test_arguments_may_have_any_name():
    class Named(layers.Layer):
        def call(self, x, layer=0, operation=0, original=0):
            return x + layer + operation + original

    with curing():
        named = Named()
        found = named(X, layer=1, operation=2, original=3)
        inputs = keras.Input((4,))
        model = keras.Model(inputs, Named()(inputs, layer=1, operation=2))
        amp.audit_layer_dtypes(model, verbose=0)
    np.testing.assert_allclose(np.float32(found), X + 6, rtol=1e-2)


class Strange:
    dtype, shape = "mine", "a circle"


@pytest.mark.parametrize(
    "argument", [{1: 2, "a": 3}, Strange(), [Strange()], np.float32(2), {"a": ["b"]}, object()]
)
@pytest.mark.parametrize("case", ["eager", "graph"])
def test_arguments_may_be_anything_that_keras_takes(argument, case):
    class Takes(layers.Layer):
        def call(self, x, other=None):
            return {"first": x * tf.ones([4]), "second": x}

    with curing():
        layer = Takes()
        call = (lambda x: layer(x, other=argument)) if case == "eager" else None
        call = call or tf.function(lambda x: layer(x, other=argument))
        assert call(X)["first"].dtype == "float32"


def test_a_number_may_choose_a_way_through_the_code():
    class Chooses(layers.Layer):
        def call(self, x, step=0):
            return x * tf.ones([4]) if step == 2 else x

    with curing():
        layer = Chooses()
        found = [layer(X, step=step).dtype.name for step in range(3)]
    assert found == ["bfloat16", "bfloat16", "float32"]


def test_a_call_that_fails_although_its_like_did_not_is_cured_the_next_time():
    fails = [False, True, True, True, False]

    class Sometimes(layers.Layer):
        def call(self, x):
            return x * tf.ones([4]) if fails.pop(0) else x

    with curing():
        layer = Sometimes()
        layer(X)
        with pytest.raises(tf.errors.InvalidArgumentError):
            layer(X)
        assert layer(X).dtype == "float32"


@pytest.mark.parametrize("case", ["eager", "graph"])
def test_a_mask_goes_along(case):
    class Masked(layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, x, mask=None):
            return x if mask is None else x * tf.cast(mask, tf.float32)[..., None]

    with curing():
        embedding, layer = layers.Embedding(5, 4, mask_zero=True), Masked()
        call = (lambda x: layer(embedding(x))) if case == "eager" else None
        call = call or tf.function(lambda x: layer(embedding(x)))
        call(np.array([[1, 2, 0]]))
    assert layer.compute_dtype == "float32"


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_a_model_that_shape_inference_builds_keeps_no_pins_of_a_call_that_stops(stop):
    class Stops(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Normalizing()

        def call(self, x):
            self.inner(x)
            raise stop("by the user")

    with pytest.raises(stop), curing():
        model = Stops()
        model(X)
    assert set(dtypes(model).values()) == {"bfloat16"}


def test_what_xla_compiles_needs_no_kernel_of_the_processors():
    with curing("fp16"):
        pool = layers.MaxPooling3D()
        compiled = tf.function(lambda x: pool(x), jit_compile=True)
        assert compiled(np.ones((2, 4, 4, 4, 1), "float32")).dtype == "float16"
    assert pool.compute_dtype == "float16"


@pytest.mark.filterwarnings("error::tf_amp_kit.errors.ConflictWarning")
def test_warnings_that_are_errors_do_not_hide_what_is_raised():
    with pytest.raises(KeyboardInterrupt), curing():
        TimesOnes()(X)
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("default::tf_amp_kit.errors.ConflictWarning")
def test_a_warning_names_a_line_that_can_be_read():
    with pytest.warns(ConflictWarning) as seen, curing():
        layer = Passing()
        layer.build((None, 4))

        @tf.function
        def call(x):
            return layer(x)

        call(X)
    ours = [one.filename for one in seen if one.category is ConflictWarning]
    assert ours == [__file__]
