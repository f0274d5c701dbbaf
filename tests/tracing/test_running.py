"""Running traced steps on batches: values by hand, and nothing changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tf_amp_kit import _keras
from tf_amp_kit.data import Batch, batches_of
from tf_amp_kit.tracing.running import StepRunner, run_plainly, values_restored
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_trace import LOSS_PATH

X = np.array([[1, 2, -4], [0, 8, 1]], np.float32)
Y = np.array([[1], [4]], np.float32)
OPTION = "disable_meta_optimizer"


def model_of(*layers: keras.layers.Layer, shape: Any = (3,)) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *layers])


def runner_of(model: keras.Model, *data: Any, loss: Any = "mse") -> StepRunner:
    return StepRunner(trace_step(model, data, loss=loss))


def outputs(runner: StepRunner, names: Sequence[str]) -> list[Any]:
    return [runner.step.reader.symbolic[runner.step.trace.outputs[name]] for name in names]


def losses(model: keras.Model, *data: Any, loss: Any = "mse", scale: float = 1.0) -> list[float]:
    runner = runner_of(model, *data, loss=loss)
    compute = runner.function(outputs(runner, [LOSS_PATH]))
    return [float(compute(batch, scale)[0]) for batch in batches_of(data, None)]


def ones(**options: Any) -> keras.layers.Dense:
    return keras.layers.Dense(1, kernel_initializer="ones", **options)


@pytest.mark.parametrize("scale", [1.0, 1024.0, 3.0])
def test_the_loss_is_that_of_the_batch_times_the_scale(scale: float) -> None:
    # Predictions -1 and 9: errors -2 and 5.
    assert losses(model_of(ones()), X, Y, scale=scale) == [scale * (4 + 25) / 2]


def test_sample_weights_are_taken_for_what_they_are() -> None:
    weights = np.array([2.0, 0.0], np.float32)
    assert losses(model_of(ones()), X, Y, weights) == [2 * 4 / 2]


def test_gradients_are_computed_of_the_batch() -> None:
    runner = runner_of(model_of(ones(name="out")), X, Y)
    compute = runner.function(outputs(runner, ["@gradients/out/kernel", "@gradients/out/bias"]))
    kernel, bias = compute(Batch(*map(tf.constant, (X, Y))), 1.0)
    error = np.array([[-2], [5]], np.float32)  # of the mean of two squares
    np.testing.assert_array_equal(kernel, X.T @ error)
    np.testing.assert_array_equal(bias, error.sum(axis=0))


def test_inputs_by_key_each_reach_their_own() -> None:
    named = {name: keras.Input((1,), name=name) for name in ("b", "a")}
    inputs = {"b": np.array([[5.0]], np.float32), "a": np.array([[3.0]], np.float32)}
    model = keras.Model(named, keras.layers.Subtract()([named["b"], named["a"]]))
    assert losses(model, inputs, np.zeros((1, 1), np.float32)) == [4.0]


def test_inputs_in_a_list_each_reach_their_own() -> None:
    named = [keras.Input((1,)), keras.Input((1,))]
    inputs = [np.array([[5.0]], np.float32), np.array([[3.0]], np.float32)]
    model = keras.Model(named, keras.layers.Subtract()(named))
    assert losses(model, inputs, np.zeros((1, 1), np.float32)) == [4.0]


def test_sparse_inputs_are_run() -> None:
    model = keras.Sequential([keras.Input((3,), sparse=True), ones()])
    assert losses(model, tf.sparse.from_dense(X), Y) == [29 / 2]


class Totals(keras.Model):
    def call(self, x: Any) -> Any:
        return tf.reduce_sum(x, axis=1, keepdims=True)


def test_ragged_inputs_are_run() -> None:
    rows = tf.ragged.constant([[1.0, 2.0], [4.0]])
    assert losses(Totals(), rows, np.zeros((2, 1), np.float32)) == [(9 + 16) / 2]


def test_batches_of_every_size_run_in_one_graph() -> None:
    runner = runner_of(model_of(ones()), X, Y)
    compute = runner.function(outputs(runner, [LOSS_PATH]))
    found = [float(compute(batch, 1.0)[0]) for batch in batches_of((X, Y), 1)]
    assert found == [4.0, 25.0]


def test_later_values_of_weights_are_used() -> None:
    layer = ones()
    model = model_of(layer)
    runner = runner_of(model, X, Y)
    compute = runner.function(outputs(runner, [LOSS_PATH]))
    layer.set_weights([np.zeros((3, 1)), np.zeros(1)])
    assert float(compute(Batch(*map(tf.constant, (X, Y))), 1.0)[0]) == (1 + 16) / 2


def noisy() -> tuple[keras.Model, StepRunner, Any]:
    """A model with statistics and draws, and what computes its loss."""
    layers = keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=3), ones()
    model = model_of(*layers, shape=(64,))
    x, y = np.random.default_rng(0).random((8, 64), np.float32), np.zeros((8, 1), np.float32)
    runner = runner_of(model, x, y)
    compute = runner.function(outputs(runner, [LOSS_PATH]))
    batch = Batch(tf.constant(x), tf.constant(y))
    return model, runner, lambda: float(compute(batch, 1.0)[0])


def values(model: keras.Model) -> list[Any]:
    return [np.array(variable) for variable in model.variables]


def test_a_run_leaves_all_variables_as_they_were() -> None:
    model, _, run = noisy()
    before = values(model)
    run()
    np.testing.assert_equal(values(model), before)


def test_a_second_run_draws_the_same() -> None:
    _, _, run = noisy()
    assert run() == run()


def test_the_next_batch_has_other_draws() -> None:
    _, runner, run = noisy()
    with runner.series():
        first = run()
        runner.next_batch()
        assert run() != first


def test_draws_of_a_series_are_those_of_training() -> None:
    layers = keras.layers.Dropout(0.5, seed=3), ones()
    model = model_of(*layers, shape=(64,))
    x, y = np.ones((1, 64), np.float32), np.zeros((1, 1), np.float32)
    runner = runner_of(model, x, y)
    compute = runner.function(outputs(runner, [LOSS_PATH]))
    found = []
    with runner.series():
        for _ in range(3):
            found.append(float(compute(Batch(tf.constant(x), tf.constant(y)), 1.0)[0]))
            runner.next_batch()
    assert found == [float(model(x, training=True)[0, 0]) ** 2 for _ in range(3)]


def test_statistics_do_not_move_from_batch_to_batch() -> None:
    model, runner, run = noisy()
    before = values(model)[:4]
    with runner.series():
        run()
        runner.next_batch()
        np.testing.assert_equal(values(model)[:4], before)


def test_a_series_leaves_all_variables_as_they_were() -> None:
    model, runner, run = noisy()
    before = values(model)
    with runner.series():
        for _ in range(3):
            run()
            runner.next_batch()
    np.testing.assert_equal(values(model), before)


def test_a_series_that_fails_leaves_all_variables_as_they_were() -> None:
    model, runner, run = noisy()
    before = values(model)
    with pytest.raises(KeyboardInterrupt), runner.series():
        run()
        runner.next_batch()
        raise KeyboardInterrupt
    np.testing.assert_equal(values(model), before)


class Counting(keras.layers.Layer):
    """Has a counter of TensorFlow's own, that Keras knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = (tf.Variable(0, trainable=False),)

    def call(self, x: Any) -> Any:
        self.hidden[0].assign_add(1)
        return x


def test_variables_that_keras_does_not_know_are_given_back() -> None:
    counting = Counting()
    losses(model_of(counting, ones()), X, Y)
    assert int(counting.hidden[0]) == 0


def test_a_step_that_writes_nothing_has_nothing_to_restore() -> None:
    assert runner_of(model_of(ones()), X, Y).step.variables == ()


class Cell:
    """Stands in for a variable that a graph writes."""

    def __init__(self, value: int) -> None:
        self.value = value

    def read(self) -> int:
        return self.value

    def assign(self, value: int) -> None:
        self.value = value


def test_values_are_given_back_when_a_block_fails() -> None:
    cell: Any = Cell(1)
    with pytest.raises(ZeroDivisionError), values_restored([cell]):
        cell.assign(2)
        raise ZeroDivisionError
    assert cell.value == 1


def is_off() -> bool:
    """Whether functions that this thread calls now are left as they are."""
    options = context.context().function_call_options
    config = tf.compat.v1.ConfigProto.FromString(options.config_proto_serialized)
    return bool(config.graph_options.rewrite_options.disable_meta_optimizer)


def test_tensorflow_s_optimizer_is_off_only_during_a_run() -> None:
    seen = run_plainly(lambda: [is_off()], ())
    assert (seen, is_off()) == ([True], False)


@pytest.mark.parametrize("is_optimized", [False, True])
def test_a_run_is_optimized_only_if_that_is_asked_for(
    is_optimized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(model_of(ones()), X, Y)
    seen: list[bool] = []

    def graph_function(*_: Any) -> Any:
        return lambda *_: [seen.append(is_off())]

    monkeypatch.setattr(_keras, "graph_function", graph_function)
    compute = runner.function([], is_optimized=is_optimized)
    compute(Batch(*map(tf.constant, (X, Y))), 1.0)
    assert seen == [not is_optimized]


def test_an_optimized_run_computes_the_same_and_gives_variables_back() -> None:
    model, runner, run = noisy()
    before = values(model)
    x, y = np.random.default_rng(0).random((8, 64), np.float32), np.zeros((8, 1), np.float32)
    compute = runner.function(outputs(runner, [LOSS_PATH]), is_optimized=True)
    (found,) = compute(Batch(tf.constant(x), tf.constant(y)), 1.0)
    assert float(found) == pytest.approx(run(), rel=1e-6)
    np.testing.assert_equal(values(model), before)


@pytest.fixture
def optimizer_off() -> Any:
    tf.config.optimizer.set_experimental_options({OPTION: True})
    yield
    tf.config.optimizer.set_experimental_options({OPTION: False})


@pytest.mark.usefixtures("optimizer_off")
def test_an_optimizer_that_was_off_stays_off() -> None:
    run_plainly(list, ())
    assert is_off()


def test_an_optimizer_is_on_again_after_a_run_that_failed() -> None:
    def fail() -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_plainly(fail, ())
    assert not is_off()


def test_an_optimizer_is_on_again_after_runs_that_overlapped() -> None:
    # The second begins within the first one, and ends after it.
    second_began, first_ended = threading.Event(), threading.Event()

    def first() -> Any:
        second_began.wait(10)
        return []

    def second() -> Any:
        second_began.set()
        first_ended.wait(10)
        return [is_off()]

    seen: list[Any] = []
    other = threading.Thread(target=lambda: seen.extend(run_plainly(second, ())))

    def start_other() -> Any:
        other.start()
        return first()

    run_plainly(start_other, ())
    first_ended.set()
    other.join()
    assert (seen, is_off()) == ([True], False)
