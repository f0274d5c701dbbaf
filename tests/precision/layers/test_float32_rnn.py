"""`Float32` as a cell, around recurrent layers, and inside those that take layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.layers.cases import normal

Float32 = amp.layers.Float32

Wrap = Callable[[Any], Any]


class Decay(keras.layers.Layer):
    """A cell with one state, and without what Keras's cells have besides."""

    state_size = 4

    def call(self, inputs: Any, memory: Any) -> Any:
        state = 0.5 * memory[0] + inputs
        return state, [state]


def plain(layer: Any) -> Any:
    return layer


def wrapped(layer: Any) -> Any:
    return Float32(layer, output="float32")


def cell_in_rnn(wrap: Wrap) -> Any:
    return keras.layers.RNN(wrap(keras.layers.LSTMCell(4)))


def stacked_wrapped(wrap: Wrap) -> Any:
    cells = [wrap(keras.layers.LSTMCell(4)), wrap(keras.layers.GRUCell(3))]
    return keras.layers.RNN(keras.layers.StackedRNNCells(cells, dtype="float32"))


def wrapped_stack(wrap: Wrap) -> Any:
    cells = [keras.layers.LSTMCell(4), keras.layers.GRUCell(3)]
    return keras.layers.RNN(wrap(keras.layers.StackedRNNCells(cells)))


def own_cell(wrap: Wrap) -> Any:
    return keras.layers.RNN(wrap(Decay()))


def unrolled(wrap: Wrap) -> Any:
    return keras.layers.RNN(wrap(keras.layers.GRUCell(4)), unroll=True)


def lstm(wrap: Wrap) -> Any:
    return wrap(keras.layers.LSTM(4))


def bidirectional(wrap: Wrap) -> Any:
    return wrap(keras.layers.Bidirectional(keras.layers.LSTM(4)))


def bidirectional_rnn(wrap: Wrap) -> Any:
    return keras.layers.Bidirectional(keras.layers.RNN(wrap(keras.layers.LSTMCell(4))))


def with_dropout(wrap: Wrap) -> Any:
    cell = keras.layers.LSTMCell(4, dropout=0.5, recurrent_dropout=0.3, seed=5)
    return keras.layers.RNN(wrap(cell))


def stacked_with_dropout(wrap: Wrap) -> Any:
    cells = [
        wrap(keras.layers.LSTMCell(4, dropout=0.5, recurrent_dropout=0.3, seed=5)),
        wrap(keras.layers.GRUCell(3, dropout=0.3, recurrent_dropout=0.5, seed=6)),
    ]
    return keras.layers.RNN(keras.layers.StackedRNNCells(cells, dtype="float32"))


def lstm_with_dropout(wrap: Wrap) -> Any:
    return wrap(keras.layers.LSTM(4, dropout=0.5, recurrent_dropout=0.3, seed=5))


KINDS = [
    cell_in_rnn,
    stacked_wrapped,
    wrapped_stack,
    own_cell,
    unrolled,
    lstm,
    bidirectional,
    bidirectional_rnn,
    with_dropout,
    stacked_with_dropout,
    lstm_with_dropout,
]
# XLA takes seconds for each.
JIT_KINDS = [with_dropout, lstm]

by_kind = pytest.mark.parametrize("make", KINDS)


def eager(layer: Any, x: Any) -> Any:
    return layer(x, training=True)


def in_graph(layer: Any, x: Any) -> Any:
    return tf.function(eager)(layer, x)


def in_jit(layer: Any, x: Any) -> Any:
    return tf.function(eager, jit_compile=True)(layer, x)


def in_model(layer: Any, x: Any) -> Any:
    inputs = keras.Input(x.shape[1:])
    return keras.Model(inputs, layer(inputs))(x, training=True)


@pytest.mark.parametrize(
    ("make", "call"),
    [
        *((make, call) for make in KINDS for call in (eager, in_graph, in_model)),
        *((make, in_jit) for make in JIT_KINDS),
    ],
)
def test_results_are_those_of_a_float32_program(
    make: Callable[[Wrap], Any], call: Callable[[Any, Any], Any]
) -> None:
    x = normal(2, 5, 4)
    keras.utils.set_random_seed(1)
    expected = call(make(plain), x)
    with amp.amp_scope("fp16"):
        keras.utils.set_random_seed(1)
        found = call(make(wrapped), tf.cast(x, "float32"))
    # What surrounds a cell is half: it rounds the sequence, and the last output.
    tolerance = 0 if make in (lstm, bidirectional, lstm_with_dropout) else 4e-3
    np.testing.assert_allclose(np.asarray(found, "float32"), expected, atol=tolerance)


@pytest.mark.parametrize("output", ["compute", "float32"])
def test_states_stay_float32_in_the_loop(output: str) -> None:
    # In float16, 2048 + 1 is 2048.
    cell = Float32(Counter(), output=output, dtype="mixed_float16")
    rnn = keras.layers.RNN(cell, return_state=True, dtype="float32")
    counted, state = rnn(tf.ones((1, 3, 1)))
    assert float(state[0, 0]) == 2051
    # 2051 lies between two numbers of float16.
    assert float(counted[0, 0]) == {"compute": 2052, "float32": 2051}[output]


class Counter(keras.layers.Layer):
    """A cell that counts on from 2048."""

    state_size = 1
    output_size = 1

    def get_initial_state(self, batch_size: Any) -> Any:
        return [keras.ops.full((batch_size, 1), 2048.0, dtype=self.compute_dtype)]

    def call(self, inputs: Any, states: Any) -> Any:
        counted = states[0] + inputs
        return counted, [counted]


def test_the_mask_of_a_dropped_cell_is_one_for_all_time_steps() -> None:
    cell = keras.layers.SimpleRNNCell(
        50, dropout=0.5, kernel_initializer="identity", recurrent_initializer="zeros", seed=1
    )
    rnn = keras.layers.RNN(Float32(cell), return_sequences=True)
    outputs = np.asarray(rnn(tf.ones((1, 4, 50)), training=True))
    assert 0 < (outputs[0, 0] == 0).sum() < 50
    np.testing.assert_array_equal(outputs[0], np.broadcast_to(outputs[0, 0], (4, 50)))


def test_the_mask_of_a_dropped_cell_is_another_one_for_the_next_batch() -> None:
    rnn = keras.layers.RNN(Float32(keras.layers.LSTMCell(8, dropout=0.5, seed=1)))
    x = normal(2, 3, 16)
    assert (np.asarray(rnn(x, training=True)) != np.asarray(rnn(x, training=True))).any()


@by_kind
def test_training_works(make: Callable[[Wrap], Any]) -> None:
    fit(make, jit_compile=False)


@pytest.mark.parametrize("make", JIT_KINDS)
def test_training_works_compiled_by_xla(make: Callable[[Wrap], Any]) -> None:
    fit(make, jit_compile=True)


def fit(make: Callable[[Wrap], Any], *, jit_compile: bool) -> None:
    with amp.amp_scope("bf16"):
        model = keras.Sequential([keras.Input((5, 4)), make(Float32), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=jit_compile)
    history = model.fit(normal(8, 5, 4), normal(8, 1), batch_size=4, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Float32(keras.layers.GRU(3, stateful=True), output="float32"),
        lambda: keras.layers.RNN(Float32(keras.layers.GRUCell(3)), stateful=True, dtype="float32"),
    ],
    ids=["around", "inside"],
)
def test_a_stateful_layer_goes_on_and_starts_again(make: Callable[[], Any]) -> None:
    x = normal(2, 3, 4)
    with amp.amp_scope("bf16"):
        model = keras.Sequential([keras.Input(batch_shape=(2, 3, 4)), make()])
    reference = keras.layers.GRU(3, stateful=True)
    reference.build((2, 3, 4))
    reference.set_weights(model.get_weights()[:3])
    first = model(x)
    assert (np.asarray(model(x)) != np.asarray(first)).any()
    model.layers[0].reset_state()
    reference(x)
    np.testing.assert_allclose(model(x), first)
    np.testing.assert_allclose(model(x), reference(x), rtol=0, atol=4e-3)


def test_initial_states_and_returned_ones_pass_through() -> None:
    x, states = normal(2, 3, 4), [normal(2, 5), normal(2, 5, seed=9)]
    reference = keras.layers.LSTM(5, return_state=True, return_sequences=True)
    expected = reference(x, initial_state=states)
    with amp.amp_scope("fp16"):
        layer = Float32(
            keras.layers.LSTM(5, return_state=True, return_sequences=True), output="float32"
        )
    layer.build((2, 3, 4))
    layer.set_weights(reference.get_weights())
    for one, other in zip(layer(x, initial_state=states), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_layer_that_is_no_cell_is_none_when_wrapped() -> None:
    with pytest.raises(ValueError, match="state_size must be specified"):
        keras.layers.RNN(Float32(keras.layers.Dense(3)))


def test_cell_states_come_back_as_they_came() -> None:
    # StackedRNNCells, when it is half, carries half states.
    states = [tf.zeros((2, 3), "float16")] * 2
    output, new = Float32(keras.layers.LSTMCell(3), dtype="mixed_bfloat16")(normal(2, 4), states)
    assert output.dtype.name == "bfloat16"
    assert [state.dtype.name for state in new] == ["float16", "float16"]
