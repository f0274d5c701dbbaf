"""Layers that draw random numbers: which they are, and what they hand on."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.recorder import OpenCall
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS


def found_in(model: keras.Model, training: bool = True) -> DrawingLayers:
    x = np.ones((2, *model.input_shape[1:]), np.float32)
    step = trace_step(model, (x,), until=OUTPUTS, training=training)
    return DrawingLayers.of(model, step)


def drawing(*stack: layers.Layer, shape: tuple[int, ...] = (4,), **options: Any) -> DrawingLayers:
    return found_in(keras.Sequential([keras.Input(shape), *stack]), **options)


class Sampling(layers.Layer):
    """Code of a user's that draws by itself."""

    def call(self, x: Any) -> Any:
        return x + tf.random.normal(tf.shape(x), dtype=x.dtype)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.Dropout(0.5), (4,)),
        (layers.SpatialDropout1D(0.5), (4, 2)),
        (layers.AlphaDropout(0.5), (4,)),
        (layers.GaussianDropout(0.5), (4,)),
        (layers.GaussianNoise(0.5), (4,)),
        (layers.RandomFlip(), (4, 4, 3)),
        (layers.RandomRotation(0.1), (4, 4, 3)),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, layers.Layer) else "",
)
def test_layers_that_only_draw_are_held(layer, shape):
    assert drawing(layer, shape=shape) == DrawingLayers((layer,), ())


def test_a_wrapper_around_one_is_held():
    # Its loop has a body, in which the layer inside draws.
    wrapper = layers.TimeDistributed(layers.Dropout(0.5))
    assert drawing(wrapper, shape=(3, 4)) == DrawingLayers((wrapper,), ())


def test_what_is_in_a_wrapper_goes_along_with_it():
    wrapper, alone = layers.TimeDistributed(layers.Dropout(0.5)), layers.Dropout(0.5)
    found = DrawingLayers((wrapper, alone), ()).with_inner
    assert found == (wrapper, wrapper.layer, alone)


def test_what_also_computes_is_named_and_not_held():
    found = drawing(layers.LSTM(3, dropout=0.5, name="lstm"), shape=(3, 4))
    assert found == DrawingLayers((), ("lstm",))


def test_code_of_a_user_s_is_named_and_not_held():
    assert drawing(Sampling(name="b"), Sampling(name="a")) == DrawingLayers((), ("a", "b"))


def test_a_subclass_of_dropout_with_code_of_its_own_is_not_held():
    class Mine(layers.Dropout):
        def call(self, x: Any, training: Any = None) -> Any:
            return super().call(x, training=training) * 2

    assert drawing(Mine(0.5, name="mine")) == DrawingLayers((), ("mine",))


def test_layers_that_do_not_draw_in_this_mode_are_none():
    assert drawing(layers.Dropout(0.5), training=False) == DrawingLayers((), ())


def test_a_model_without_draws_has_none():
    assert drawing(layers.Dense(2), layers.BatchNormalization()) == DrawingLayers((), ())


def test_the_layers_of_a_twin_are_found_by_their_paths():
    def build() -> keras.Model:
        return keras.Sequential([keras.Input((4,)), layers.Dropout(0.5), Sampling(name="b")])

    traced, twin = build(), build()
    step = trace_step(traced, (np.ones((2, 4)),), until=OUTPUTS)
    assert DrawingLayers.of(twin, step) == DrawingLayers((twin.layers[0],), ("b",))


def call_of(layer: layers.Layer, outputs: Any) -> OpenCall:
    return OpenCall(0, -1, 1, layer, "a", ((), {}), None, 0, outputs=outputs)


def narrowed(policy: str, held: bool = True, pinned: bool = False) -> list[str]:
    """The dtypes of what a layer hands on, of a float and an integer."""
    layer = layers.Dropout(0.5, dtype=policy)
    calls = DrawingLayers((layer,) if held else (), ())
    outputs = [tf.ones(2), tf.ones(2, tf.int32)]
    found = calls.as_in_half(call_of(layer, outputs), pinned=[layer] if pinned else ())
    return [one.dtype.name for one in found]


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_floats_are_handed_on_in_the_layer_s_own_format(half):
    assert narrowed(f"mixed_{half}") == [half, "int32"]


def test_a_layer_in_float32_hands_on_what_it_made():
    assert narrowed("float32") == ["float32", "int32"]


def test_a_pinned_layer_hands_on_what_it_made():
    assert narrowed("mixed_float16", pinned=True) == ["float32", "int32"]


def test_other_layers_hand_on_what_they_made():
    assert narrowed("mixed_float16", held=False) == ["float32", "int32"]
