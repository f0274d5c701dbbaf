"""Really running choices of pins: against models that are built that way."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.comparison.planning.running.runs import Run, Runs
from tf_amp_kit.data import Batch, batch_specs
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import GRADIENTS, LOSS, OUTPUTS

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 5)).astype(np.float32), RNG.normal(size=(8, 2)).astype(np.float32)
BATCH = Batch(tf.constant(X), tf.constant(Y))


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_float16")


class Block(layers.Layer):
    def __init__(self, dtypes: dict[str, str], **options: Any) -> None:
        super().__init__(dtype=dtypes.get("block"), **options)
        self.a = layers.Dense(6, dtype=dtypes.get("block/a"))
        self.b = layers.Dense(6, dtype=dtypes.get("block/b"))

    def build(self, shape: Any) -> None:
        self.a.build(shape)
        self.b.build((None, 6))

    def call(self, x: Any) -> Any:
        return keras.ops.tanh(self.b(self.a(x)))


def built(*wide: str) -> keras.Model:
    """A net with the same weights each time, and some layers built in float32."""
    dtypes = dict.fromkeys(wide, "float32")
    stack = [layers.Dense(7, "relu", name="body", dtype=dtypes.get("body"))]
    stack += [layers.BatchNormalization(name="norm", dtype=dtypes.get("norm"))]
    stack += [Block(dtypes, name="block"), layers.Dense(2, name="head", dtype=dtypes.get("head"))]
    model = keras.Sequential([keras.Input((5,)), *stack])
    rng = np.random.default_rng(1)
    model.set_weights([rng.uniform(0.5, 1.5, one.shape) for one in model.get_weights()])
    return model


ALL = ("body", "norm", "block", "block/a", "block/b", "head")


def runs_of(model: keras.Model, *data: Any, loss: Any = "mse") -> Runs:
    data = data or (X, Y)
    step = trace_step(model, data, loss=loss, in_float32=True, until=OUTPUTS)
    return Runs(model, batch_specs(data), loss, DrawingLayers.of(model, step))


def output(run: Run, batch: Batch = BATCH) -> Any:
    (found,) = run.on(batch).outputs.values()
    return found


def called(model: keras.Model, x: Any = X) -> Any:
    """What the model makes; graphs may be rewritten, and differ in the last bit."""
    return model(tf.constant(x), training=False).numpy()


@pytest.mark.parametrize(
    ("pins", "wide"),
    [
        ((), ()),
        (("body",), ("body",)),
        (("norm", "head"), ("norm", "head")),
        (("block/a",), ("block/a",)),
        (("block",), ("block", "block/a", "block/b")),
        (("body", "norm", "block", "head"), ALL),
    ],
    ids=["none", "one", "two", "part", "composite", "all"],
)
def test_pins_compute_what_layers_built_in_float32_do(pins, wide):
    found = output(runs_of(built()).with_pins(pins, OUTPUTS, None))
    np.testing.assert_array_equal(found, np.float32(called(built(*wide))))


def test_float32_computes_what_the_model_does_without_half():
    found = output(runs_of(built()).float32(OUTPUTS, None))
    np.testing.assert_array_equal(found, called(built(*ALL)))


def test_a_run_knows_nothing_of_the_one_before():
    runs = runs_of(built())
    first = output(runs.with_pins((), OUTPUTS, None))
    runs.with_pins(("body", "block"), OUTPUTS, None)
    runs.float32(OUTPUTS, None)
    np.testing.assert_array_equal(output(runs.with_pins((), OUTPUTS, None)), first)


def test_the_model_is_as_it_was():
    model = built()
    before = [np.array(one) for one in model.variables]
    runs_of(model).with_pins(("body",), GRADIENTS, None).on(BATCH, 1024.0)
    assert [layer.compute_dtype for layer in model.layers] == ["float16"] * 4
    assert all(map(np.array_equal, before, map(np.array, model.variables)))


def test_pins_mean_the_layers_and_what_is_in_them():
    model = built()
    block = model.get_layer("block")
    assert runs_of(model).layers_of(["block", "bo"]) == [block, block.a, block.b]


def test_outputs_have_their_keys_and_integers_are_left_out():
    x = keras.Input((5,))
    model = keras.Model(x, {"a": layers.Dense(2)(x), "b": keras.ops.argmax(x, axis=-1)})
    assert set(runs_of(model, X).float32(OUTPUTS, None).on(Batch(tf.constant(X))).outputs) == {"a"}


def test_a_run_ends_where_it_was_told_to():
    runs = runs_of(built())
    ends = [runs.with_pins((), until, None).on(BATCH) for until in (OUTPUTS, LOSS, GRADIENTS)]
    assert [(one.loss is not None, bool(one.gradients)) for one in ends] == [
        (False, False),
        (True, False),
        (True, True),
    ]


def linear() -> keras.Model:
    """y = 2 x in float32, so that loss and gradients are known."""
    head = layers.Dense(1, use_bias=False, kernel_initializer=keras.initializers.Constant(2))
    return keras.Sequential([keras.Input((1,)), head])


ONE = np.array([[1], [3]], np.float32), np.array([[4], [5]], np.float32)


@pytest.mark.parametrize("scale", [1.0, 512.0])
def test_the_scale_is_taken_out_of_loss_and_gradients(scale):
    # 2 and 6 for 4 and 5: the loss is (4 + 1) / 2, its slope (-2 * 1 + 1 * 3) * 2 / 2.
    batch = Batch(*map(tf.constant, ONE))
    found = runs_of(linear(), *ONE).with_pins((), GRADIENTS, None).on(batch, scale)
    assert (found.loss, [one.item() for one in found.gradients.values()]) == (2.5, [1.0])


def test_gradients_of_rows_are_summed_by_row():
    embedding = layers.Embedding(3, 1, embeddings_initializer="ones", name="rows")
    model = keras.Sequential([keras.Input((4,), dtype="int32"), embedding, layers.Flatten()])
    data = np.array([[2, 0, 2, 2]], np.int32), np.zeros((1, 4), np.float32)
    found = runs_of(model, *data).float32(GRADIENTS, None).on(Batch(*map(tf.constant, data)))
    # Each of the four ones has a slope of 2 / 4.
    np.testing.assert_array_equal(found.gradients["rows/embeddings"], [[0.5], [0], [1.5]])


def test_each_batch_is_counted_once_per_run():
    runs = runs_of(built())
    one, other = runs.with_pins((), OUTPUTS, None), runs.float32(OUTPUTS, None)
    for run in (one, one, other):
        run.on(BATCH)
    assert runs.num_passes == 3


def test_a_scale_that_overflows_is_halved_until_it_fits():
    # The slope of the output is about 1.5 in all: times 2^16 it is above 65504.
    batch, data = Batch(tf.ones((1, 1)), tf.zeros((1, 1))), (np.ones((1, 1)), np.zeros((1, 1)))
    runs = runs_of(linear(), *data)
    run = runs.with_pins((), GRADIENTS, None)
    found = run.at_fitting_scale(batch, 2.0**16)
    # (2 x)^2 has a slope of 4 at the output: 2^13 times it is finite, 2^14 times is not.
    assert (found.is_finite, runs.num_passes) == (True, 4)
    assert [one.item() for one in found.gradients.values()] == [4.0]


def test_a_scale_that_fits_stays():
    runs = runs_of(built())
    runs.with_pins((), GRADIENTS, None).at_fitting_scale(BATCH, 8.0)
    assert runs.num_passes == 1


def test_without_gradients_no_scale_is_looked_for():
    runs = runs_of(built())
    runs.with_pins((), LOSS, None).at_fitting_scale(BATCH, 2.0**127)
    assert runs.num_passes == 1


def overflowing(value: float) -> tuple[Runs, Batch]:
    data = np.full((1, 1), value, np.float32), np.zeros((1, 1), np.float32)
    stack = layers.Rescaling(1000.0), layers.Rescaling(1.0), layers.Dense(1)
    model = keras.Sequential([keras.Input((1,)), *stack, layers.LayerNormalization()])
    return runs_of(model, *data), Batch(*map(tf.constant, data))


def test_no_scale_is_looked_for_when_the_outputs_are_nan():
    runs, batch = overflowing(1000.0)
    found = runs.with_pins((), GRADIENTS, None).at_fitting_scale(batch, 2.0**15)
    assert (np.isnan(*found.outputs.values()).any(), runs.num_passes) == (True, 1)


def test_the_search_for_a_scale_ends_at_one():
    # The loss itself is infinite at every scale.
    def infinite(y: Any, prediction: Any) -> Any:
        return keras.ops.sum(prediction - y) * math.inf

    data = (np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32))
    runs = runs_of(linear(), *data, loss=infinite)
    found = runs.with_pins((), GRADIENTS, None).at_fitting_scale(
        Batch(*map(tf.constant, data)), 8.0
    )
    assert (found.is_finite, runs.num_passes) == (False, 4)


def noisy() -> keras.Model:
    stack = layers.Dense(4, name="a"), layers.Dropout(0.5, name="drop"), layers.GaussianNoise(0.9)
    last = layers.BatchNormalization(name="norm"), layers.Dense(2, name="head")
    return keras.Sequential([keras.Input((5,)), *stack, *last])


def test_dropout_noise_and_statistics_are_held_still():
    model = noisy()
    run = runs_of(model).with_pins((), GRADIENTS, None)
    for _ in range(2):
        np.testing.assert_array_equal(output(run), np.float32(called(model)))


class Draws(layers.Layer):
    """Code of a user's that hands on what a random layer of Keras made, in every mode."""

    def __init__(self, inner: layers.Layer, **options: Any) -> None:
        super().__init__(**options)
        self.inner = inner

    def call(self, x: Any) -> Any:
        return self.inner(x, training=True) + x

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


@pytest.mark.parametrize(
    "build",
    [
        lambda: layers.RandomFlip(seed=1),
        lambda: layers.Dropout(0.5, seed=1),
        lambda: layers.TimeDistributed(layers.Dropout(0.5, seed=1)),
        lambda: layers.TimeDistributed(layers.GaussianNoise(0.5, seed=1)),
    ],
    ids=["flip", "dropout", "wrapped_dropout", "wrapped_noise"],
)
def test_random_layers_draw_in_float32_and_hand_on_half(build):
    inner = build()
    model = keras.Sequential([keras.Input((4, 4, 1)), Draws(inner, name="draws")])
    x = RNG.normal(size=(2, 4, 4, 1)).astype(np.float32)
    runs, batch = runs_of(model, x), Batch(tf.constant(x))
    wide = output(runs.float32(OUTPUTS, None), batch)
    half = output(runs.with_pins((), OUTPUTS, None), batch)
    # With other draws they would be far from each other.
    np.testing.assert_allclose(half, wide, rtol=2e-3, atol=4e-3)
    assert runs.drawing.layers == (inner,) and not np.array_equal(half, wide)


def test_the_units_that_are_asked_for_are_watched():
    run = runs_of(built()).with_pins((), OUTPUTS, ["head", "block/a"])
    assert [one.path for one in run.on(BATCH).extremes] == ["block/a", "head"]
