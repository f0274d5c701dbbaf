"""What a plan may pin, of models of every kind."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.comparison.planning.units import Unit, find_units, innermost, topmost
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")


def units_of(model: keras.Model, x: Any = None) -> list[tuple[str, str | None]]:
    """The paths of units, with the units around them."""
    x = np.ones((2, *model.input_shape[1:]), np.float32) if x is None else x
    step = trace_step(model, (x,), until=OUTPUTS, training=False)
    return [(unit.path, unit.parent) for unit in find_units(step, LayerPaths(model))]


def paths_of(*stack: layers.Layer, shape: tuple[int, ...] = (4,)) -> list[str]:
    return [path for path, _ in units_of(keras.Sequential([keras.Input(shape), *stack]))]


class Block(layers.Layer):
    """Code of a user's around two layers of its own."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first, self.second = layers.Dense(4), layers.Dense(4)

    def call(self, x: Any) -> Any:
        return self.second(self.first(x)) * 2


def test_each_layer_in_half_is_a_unit_in_the_order_of_the_calls():
    stack = layers.Dense(4, name="b"), layers.ReLU(name="c"), layers.Dense(4, name="a")
    assert paths_of(*stack) == ["b", "c", "a"]


def test_a_unit_knows_its_class():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4, name="a")])
    step = trace_step(model, (np.ones((2, 4)),), until=OUTPUTS)
    assert find_units(step, LayerPaths(model)) == (Unit("a", "Dense", None),)


def test_what_computes_in_float32_already_is_none():
    stack = layers.Dense(4, name="a"), layers.Dense(4, name="head", dtype="float32")
    assert paths_of(*stack) == ["a"]


def test_a_float32_model_has_none():
    keras.config.set_dtype_policy("float32")
    assert paths_of(layers.Dense(4), Block()) == []


def test_a_layer_that_is_called_twice_is_one():
    shared = layers.Dense(4, name="a")
    assert paths_of(shared, layers.ReLU(name="r"), shared) == ["a", "r"]


def test_a_layer_that_is_never_called_is_none():
    class Idle(layers.Layer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.idle = layers.Dense(4)

        def build(self, shape: Any) -> None:
            self.idle.build(shape)

        def call(self, x: Any) -> Any:
            return x * 2

    assert paths_of(Idle(name="a")) == ["a"]


def test_graph_models_are_none_but_what_is_in_them():
    inner = keras.Sequential([layers.Dense(4, name="a")], name="inner")
    x = keras.Input((4,))
    middle = keras.Model(x, layers.ReLU(name="b")(inner(x)), name="middle")
    assert paths_of(middle) == ["middle/inner/a", "middle/b"]


def test_operations_between_layers_are_none():
    x = keras.Input((4,))
    model = keras.Model(x, keras.ops.exp(layers.Dense(4, name="a")(x)) + 1)
    assert units_of(model) == [("a", None)]


@pytest.mark.parametrize(
    "build",
    [
        lambda: layers.LSTM(3, name="a"),
        lambda: layers.Bidirectional(layers.GRU(3), name="a"),
        lambda: layers.RNN(layers.SimpleRNNCell(3), name="a"),
        lambda: layers.TimeDistributed(layers.Dense(3), name="a"),
    ],
    ids=["lstm", "bidirectional", "cell", "time_distributed"],
)
def test_composites_of_keras_are_pinned_whole(build):
    assert paths_of(build(), shape=(5, 4)) == ["a"]


def test_an_attention_layer_is_pinned_whole():
    x = keras.Input((5, 4))
    model = keras.Model(x, layers.MultiHeadAttention(2, 2, name="a")(x, x))
    assert units_of(model) == [("a", None)]


def test_a_composite_of_a_user_s_is_a_unit_and_so_are_its_layers():
    model = keras.Sequential([keras.Input((4,)), Block(name="block")])
    expected = [("block", None), ("block/first", "block"), ("block/second", "block")]
    assert units_of(model) == expected


def test_a_composite_in_float32_around_half_layers_is_a_unit_still():
    # Its layers are half: pinned whole, they all go to float32.
    block = Block(name="block", dtype="float32")
    assert paths_of(block) == ["block", "block/first", "block/second"]


def test_parents_are_the_next_units_up():
    class Outer(layers.Layer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.block = Block()
            self.stack = keras.Sequential([layers.Dense(4, name="deep")], name="stack")

        def call(self, x: Any) -> Any:
            return self.stack(self.block(x)) + 1

    model = keras.Sequential([keras.Input((4,)), Outer(name="outer")])
    expected = [
        ("outer", None),
        ("outer/block", "outer"),
        ("outer/block/first", "outer/block"),
        ("outer/block/second", "outer/block"),
        ("outer/stack/deep", "outer"),
    ]
    assert units_of(model) == expected


class Net(keras.Model):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.body, self.head = layers.Dense(4), layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.head(self.body(x) * 2)


def test_a_model_of_code_is_no_unit_at_the_top():
    model = Net()
    model(np.ones((2, 4), np.float32))
    assert units_of(model, np.ones((2, 4), np.float32)) == [("body", None), ("head", None)]


def test_a_model_of_code_in_another_one_is_a_unit_around_its_layers():
    model = keras.Sequential([keras.Input((4,)), Net(name="net")])
    assert units_of(model) == [("net", None), ("net/body", "net"), ("net/head", "net")]


def test_a_graph_model_of_a_user_s_class_has_no_code_to_pin():
    class Graph(keras.Model):
        def __init__(self, **options: Any) -> None:
            x = keras.Input((4,))
            super().__init__(x, layers.Dense(4, name="a")(x), **options)

    model = keras.Sequential([keras.Input((4,)), Graph(name="net")])
    assert units_of(model) == [("net/a", None)]


class Loop(layers.Layer):
    """Calls a layer in the body of a loop, and perhaps outside of it too."""

    def __init__(self, *, outside: bool, **options: Any) -> None:
        super().__init__(**options)
        self.outside, self.inner = outside, layers.Dense(4)

    def build(self, shape: Any) -> None:
        self.inner.build(shape)

    def call(self, x: Any) -> Any:
        x = self.inner(x) if self.outside else tf.identity(x)
        return tf.while_loop(lambda _: True, lambda y: (self.inner(y),), (x,), maximum_iterations=2)


@pytest.mark.parametrize("outside", [False, True])
def test_a_layer_in_the_body_of_a_loop_belongs_to_the_layer_with_the_loop(outside):
    assert paths_of(Loop(outside=outside, name="loop")) == ["loop"]


def test_a_layer_that_returns_integers_is_none():
    class Largest(layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.argmax(x, axis=-1)

    assert paths_of(layers.Dense(4, name="a"), Largest()) == ["a"]


def test_an_embedding_takes_integers_and_is_one():
    model = keras.Sequential([keras.Input((3,), dtype="int32"), layers.Embedding(5, 2, name="a")])
    assert units_of(model, np.ones((2, 3), np.int32)) == [("a", None)]


def test_the_topmost_paths_keep_their_order_and_come_once():
    paths = ["c", "block/a", "a/b/c", "block", "a/b", "block/b", "c", "blocks"]
    assert topmost(paths) == ("c", "block", "a/b", "blocks")


def test_the_innermost_unit_is_the_one_with_the_longest_path():
    units = [Unit("block", "Block"), Unit("block/a", "Dense", "block"), Unit("b", "Dense")]
    found = [innermost(path, units) for path in ("block/a/x", "block/c", "b", "bb", "")]
    assert found == [units[1], units[0], units[2], None, None]
