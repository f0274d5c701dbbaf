"""A call that half precision makes fail, and that is made again, counts once."""

from __future__ import annotations

import re
import threading
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.precision.failing_layers import (
    Around,
    Holding,
    Model,
    Normalizing,
    TimesOnes,
    X,
    curing,
    dtypes,
)
from tf_amp_kit.precision.curing.scope import curing as curing_everywhere

pytestmark = pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.ConflictWarning")

# A first step from zero with a momentum of a half, and a second one.
ONCE, TWICE = 0.5, 0.75
CASES = ["eager", "graph"]


def function(call, case):
    return tf.function(call) if case == "graph" else call


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_built", [True, False])
def test_a_layer_that_is_called_alone(case, is_built):
    with curing():
        layer = Normalizing()
        if is_built:
            layer.build((None, 4))
        call = function(lambda x: layer(x, training=True), case)
        call(X)
        np.testing.assert_allclose(layer.share, ONCE, rtol=1e-3)
        call(X)
    np.testing.assert_allclose(layer.share, TWICE, rtol=1e-3)


@pytest.mark.parametrize("case", CASES)
def test_an_argument_that_comes_later(case):
    with curing():
        layer = Normalizing(fails=lambda x: False)
        model = Model(layer)
        model(X)
        model(X, training=True)
        function(lambda x: model(x, training=True, aux=True), case)(X)
    np.testing.assert_allclose(layer.share, TWICE, rtol=1e-3)
    assert dtypes(model)["inner/norm"] == "float32"


@pytest.mark.parametrize("case", CASES)
def test_a_batch_of_another_size(case):
    with curing():
        layer = Normalizing(fails=lambda x: x.shape[0] == 3)
        model = Model(layer)
        call = function(lambda x: model(x, training=True), case)
        call(X)
        before = layer.norm.moving_mean.numpy()
        call(X[:3])
    expected = 0.5 * before + 0.5 * X[:3].mean(0)
    np.testing.assert_allclose(layer.norm.moving_mean, expected, rtol=1e-3)


@pytest.mark.parametrize("case", [*CASES, "train_on_batch", "fit", "fit, eagerly"])
def test_a_model_that_is_not_built_around_one_that_is(case):
    with curing():
        inputs = keras.Input((4,))
        norm = layers.BatchNormalization(momentum=0.5)
        dense = layers.Dense(4)
        backbone = keras.Model(inputs, dense(norm(inputs)))
        model = Around(backbone)
        model.compile(keras.optimizers.SGD(0.0), "mse", run_eagerly=case == "fit, eagerly")
        if case.startswith("fit"):
            model.fit(X, X, batch_size=8, verbose=0)
        elif case == "train_on_batch":
            model.optimizer.build(model.trainable_variables)
            model.train_on_batch(X, X)
        else:
            function(lambda x: model(x, training=True), case)(X)
    np.testing.assert_allclose(norm.moving_mean, ONCE * X.mean(0), rtol=1e-3)
    assert (norm.compute_dtype, dense.compute_dtype) == ("bfloat16", "float32")


def test_a_call_that_no_graph_can_be_made_of():
    class InNumPy(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Normalizing()

        def call(self, x, training=False):
            return self.inner(x + float(x.numpy().sum() * 0), training=training)

    with curing():
        model = InNumPy()
        model(X, training=True)
    np.testing.assert_allclose(model.inner.share, ONCE, rtol=1e-3)


def test_seeds_metrics_and_losses():
    class Counting(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seeds = keras.random.SeedGenerator(1)
            self.mean = keras.metrics.Mean()

        def build(self, shape):
            pass

        def call(self, x):
            keras.random.uniform((1,), seed=self.seeds)
            self.mean.update_state(x)
            self.add_loss(tf.reduce_mean(x))
            return x * tf.ones([4])

    twin = Counting()
    keras.random.uniform((1,), seed=twin.seeds)
    twin.mean.update_state(X)
    with curing():
        layer = Counting()
        layer(X)
    np.testing.assert_array_equal(layer.seeds.state, twin.seeds.state)
    assert float(layer.mean.count) == float(twin.mean.count)
    assert len(layer.losses) == 1


def test_a_stateless_call():
    with curing():
        layer = Normalizing()
        layer.build((None, 4))
        model = Model(layer)
        model.built = True
        trainable, fixed = model.trainable_variables, model.non_trainable_variables
        _, after = model.stateless_call(
            [one.value for one in trainable], [one.value for one in fixed], X, training=True
        )
    mean = next(new for old, new in zip(fixed, after, strict=True) if old.name == "moving_mean")
    np.testing.assert_allclose(mean, ONCE * X.mean(0), rtol=1e-3)
    np.testing.assert_array_equal(layer.norm.moving_mean, 0)


def test_an_operation_without_a_kernel_in_a_graph_of_a_layer_alone():
    with curing("fp16"):
        pool = layers.MaxPooling3D()
        found = tf.function(lambda x: pool(x))(np.ones((2, 4, 4, 4, 1), "float32"))
    assert found.dtype == "float32"


def test_a_tensor_that_build_keeps_is_of_the_graph_that_runs():
    class KeepsTensor(layers.Layer):
        def build(self, shape):
            self.ones = tf.ones([shape[-1]])

        def call(self, x):
            return x * self.ones

    with curing():
        layer = KeepsTensor()
        found = tf.function(lambda x: layer(x))(X)
    np.testing.assert_array_equal(found, X)


def test_what_build_makes_follows_the_layer_that_is_pinned():
    class MakesInBuild(layers.Layer):
        def build(self, shape):
            self.dense = layers.Dense(4)
            self.dense.build(shape)

        def call(self, x):
            return tf.square(self.dense(x)) * tf.ones([4])

    with curing():
        layer, inputs = MakesInBuild(), keras.Input((4,))
        layer(X)
        model = keras.Model(inputs, MakesInBuild(name="made")(inputs))
    assert set(dtypes(layer).values()) == {"float32"}
    assert dtypes(model) == {"": "bfloat16", "made": "float32", "made/dense": "float32"}
    assert [len(one.weights) for one in (layer, model)] == [2, 2]


def test_of_a_nested_model_the_layer_is_pinned_that_made_the_result():
    with curing():
        inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dense(4, name="last")])
        model = Around(inner)
        model(X)
    assert [path for path, dtype in dtypes(model).items() if dtype == "float32"] == ["inner/last"]


def test_pins_are_undone_where_the_model_does_not_run_without_them():
    with curing():
        inputs = keras.Input((4,))
        model = keras.Model(inputs, layers.Dense(1)(TimesOnes(name="clash")(inputs)))
    pins = amp.Pins.on(model)
    assert pins.paths == ("clash",)
    pins.undo()
    assert set(dtypes(model).values()) == {"bfloat16"}


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_a_call_that_stops_for_another_reason_leaves_no_pins(stop):
    class Stops(Holding):
        def call(self, x):
            self.inner(x)
            raise stop("by the user")

    with pytest.raises(stop), curing():
        layer = Stops()
        layer(X)
    assert set(dtypes(layer).values()) == {"bfloat16"}


def test_a_call_that_works_is_not_rehearsed():
    class OnlyEagerError(Exception):
        pass

    class Eager(keras.Model):
        def __init__(self):
            super().__init__()
            self.seen = {"calls": []}

        def call(self, x):
            if not tf.executing_eagerly():
                raise OnlyEagerError
            self.seen["calls"].append(x)
            return x

    with curing():
        model = Eager()
        model.built = True
        model(X)
    assert len(model.seen["calls"]) == 1


@pytest.mark.parametrize(
    "message", ["Unknown file type: half of the rows are missing", "a different type of mask"]
)
def test_an_error_that_speaks_of_types_by_the_way_is_raised_at_once(message):
    calls = []

    class Fails(layers.Layer):
        def call(self, x):
            calls.append(x)
            raise ValueError(message)

    with pytest.raises(ValueError, match=re.escape(message)), curing("fp16"):
        layer = Fails()
        layer.built = True
        layer(X)
    assert len(calls) == 1


def test_an_error_that_float32_raises_does_not_hide_the_first():
    class Knows(layers.Layer):
        def call(self, x):
            return x * tf.ones([4]) * {"bfloat16": 1}[self.compute_dtype]

    with pytest.raises(tf.errors.InvalidArgumentError, match="bfloat16"), curing():
        Knows()(X)


def test_a_pin_that_no_file_can_keep_stays():
    class Holds(Holding):
        def __init__(self):
            super().__init__()
            self.stored = layers.Dense(4, dtype="bfloat16")

        def build(self, shape):
            super().build(shape)
            self.stored.build(shape)

        def call(self, x):
            return tf.cast(self.inner(self.stored(x)), "bfloat16")

        def compute_output_shape(self, shape):
            return shape

    with curing():
        inputs = keras.Input((3, 4))
        model = keras.Model(inputs, layers.TimeDistributed(Holds(), name="each")(inputs))
        model(np.ones((2, 3, 4), "float32"))
    found = dtypes(model)
    assert found["each/layer/inner/norm"] == "float32"
    assert found["each/layer/stored"] == "bfloat16"


def test_threads_keep_their_pins_apart():
    failing, cured = threading.Event(), threading.Event()
    found: dict[str, Any] = {}

    class Fails(layers.Layer):
        def call(self, x):
            if self.compute_dtype == "float32":
                failing.set()
                assert cured.wait(10)
                raise ValueError("float32 and bfloat16, and no way out")
            return x * tf.ones([4])

    class Waits(Holding):
        def call(self, x):
            x = self.inner(x)
            cured.set()
            in_vain.join()
            return x

    def fail():
        keras.config.set_dtype_policy("mixed_bfloat16")
        with pytest.raises(tf.errors.InvalidArgumentError):
            Fails()(X)

    def succeed():
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert failing.wait(10)
        inputs = keras.Input((4,))
        found["model"] = keras.Model(inputs, Waits()(inputs))

    with curing_everywhere(in_every_thread=True) as everywhere:
        in_vain, curable = threading.Thread(target=fail), threading.Thread(target=succeed)
        in_vain.start()
        curable.start()
        curable.join()
        told = everywhere.told()
    assert found["model"].layers[1].inner.norm.compute_dtype == "float32"
    assert len(told) == 1


def test_a_file_raises_where_errors_are_asked_for(tmp_path):
    with curing():
        inputs = keras.Input((4,))
        model = keras.Model(inputs, TimesOnes()(inputs))
    amp.Pins.on(model).undo()
    model.save(tmp_path / "model.keras")
    with amp.amp_scope("bf16"):
        amp.load_model(tmp_path / "model.keras")
    with (
        amp.amp_scope("bf16", on_conflict="raise"),
        pytest.raises(Exception, match=r"float32|bfloat16"),
    ):
        amp.load_model(tmp_path / "model.keras")
