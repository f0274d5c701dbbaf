"""A model that was looked at is the model that it was."""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.state import undisturbed

L = keras.layers
X = np.linspace(-1, 1, 32, dtype="float32").reshape(8, 4)
Y = np.linspace(0, 1, 8, dtype="float32").reshape(8, 1)


class Counting(L.Layer):
    """Sets attributes in its call, of every plain kind, and some tensors."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.times = 0
        self.seen: Any = None
        self.history: list[Any] = []
        self.by_name: dict[str, Any] = {}

    def call(self, inputs: Any) -> Any:
        self.times += 1
        self.seen = inputs
        self.last_name = "set in call"
        self.history.append(inputs)
        self.by_name["last"] = inputs
        return inputs


class Moody(L.Layer):
    """Draws from every random source that there is."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generator = keras.random.SeedGenerator(5)

    def call(self, inputs: Any) -> Any:
        drawn = random.random() + np.random.rand() + tf.random.uniform(())
        drawn += keras.random.uniform(()) + keras.random.uniform((), seed=self.generator)
        return inputs + keras.ops.cast(drawn, inputs.dtype)


class LooksAtValues(L.Layer):
    """Cannot be traced, so that the whole model runs eagerly."""

    def call(self, inputs: Any) -> Any:
        return inputs if float(keras.ops.convert_to_numpy(inputs).sum()) > 1e9 else inputs * 1.0


class InARow(keras.Model):
    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = list(parts)

    def call(self, inputs: Any) -> Any:
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Stateful(keras.Model):
    def __init__(self, *, eager: bool) -> None:
        super().__init__()
        looks = [LooksAtValues()] if eager else []
        self.parts = [
            *looks,
            L.Dense(6, activity_regularizer="l2"),
            L.BatchNormalization(),
            L.Dropout(0.5),
            L.GaussianNoise(0.1),
            Counting(),
            Moody(),
            L.Dense(1),
        ]

    def call(self, inputs: Any, training: bool = False) -> Any:
        for part in self.parts:
            takes = isinstance(part, L.BatchNormalization | L.Dropout | L.GaussianNoise)
            inputs = part(inputs, training=training) if takes else part(inputs)
        return inputs


@pytest.fixture(params=[False, True], ids=["graph", "eager"])
def eager(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def model(eager: bool) -> keras.Model:
    model = Stateful(eager=eager)
    model(X)
    return model


def reseed(seed: int) -> None:
    # Without it, older versions of Keras go on with the generator they have.
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)


def look(model: keras.Model) -> None:
    trace_modes(model, inputs=X)


def part(model: Any, cls: type) -> Any:
    return next(one for one in model.parts if isinstance(one, cls))


def test_the_two_kinds_of_pass_are_what_they_are_called(model: keras.Model, eager: bool) -> None:
    assert [trace.is_eager for trace in trace_modes(model, inputs=X)] == [eager, eager]


def test_no_variable_changes(model: keras.Model) -> None:
    before = [variable.numpy() for variable in model.variables]
    look(model)
    after = [variable.numpy() for variable in model.variables]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_batch_statistics_stay(model: keras.Model) -> None:
    norm = part(model, L.BatchNormalization)
    before = norm.moving_mean.numpy()
    look(model)
    np.testing.assert_array_equal(norm.moving_mean.numpy(), before)


@pytest.mark.parametrize("cls", [L.Dropout, L.GaussianNoise, Moody])
def test_seed_states_stay(model: keras.Model, cls: type) -> None:
    layer = part(model, cls)
    generator = layer.generator if cls is Moody else layer.seed_generator
    before = generator.state.numpy()
    look(model)
    np.testing.assert_array_equal(generator.state.numpy(), before)


DRAWS: dict[str, Callable[[], float]] = {
    "python": random.random,
    "numpy": np.random.rand,
    "tensorflow": lambda: float(tf.random.uniform(())),
    "keras": lambda: float(keras.random.uniform(())),
}


@pytest.mark.parametrize("source", DRAWS)
def test_the_next_random_number_is_the_same(model: keras.Model, source: str) -> None:
    reseed(7)
    expected = DRAWS[source]()
    reseed(7)
    look(model)
    assert DRAWS[source]() == expected


@pytest.mark.slow
@pytest.mark.parametrize("source", DRAWS)
def test_a_random_sequence_goes_on_where_it_was(model: keras.Model, source: str) -> None:
    reseed(7)
    expected = [DRAWS[source]() for _ in range(3)][1:]
    reseed(7)
    DRAWS[source]()
    look(model)
    assert [DRAWS[source]() for _ in range(2)] == expected


def test_losses_stay(model: keras.Model) -> None:
    before = [float(loss) for loss in model.losses]
    look(model)
    assert [float(loss) for loss in model.losses] == before


def test_numbers_and_tensors_set_in_call_stay(model: keras.Model) -> None:
    counting = part(model, Counting)
    before = (counting.times, counting.last_name)
    seen = counting.seen
    look(model)
    assert (counting.times, counting.last_name, counting.seen is seen) == (*before, True)


def test_containers_filled_in_call_stay(model: keras.Model) -> None:
    counting = part(model, Counting)
    before = (len(counting.history), counting.by_name["last"])
    look(model)
    assert (len(counting.history), counting.by_name["last"] is before[1]) == (before[0], True)


def test_an_attribute_that_call_adds_is_gone(eager: bool) -> None:
    class Adds(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.looks = LooksAtValues() if eager else L.Dense(2)

        def call(self, inputs: Any) -> Any:
            self.new_number = 3
            self.new_tensor = self.looks(inputs)
            return self.new_tensor

    model = Adds()
    model(X)
    for name in ("new_number", "new_tensor"):
        vars(model).pop(name, None)
    look(model)
    assert {"new_number", "new_tensor"} & set(vars(model)) == set()


def test_no_layer_gains_or_loses_an_attribute(model: keras.Model) -> None:
    layers = [layer for _, layer in LayerPaths(model)]
    before = [sorted(vars(layer)) for layer in layers]
    look(model)
    assert [sorted(vars(layer)) for layer in layers] == before


def test_no_layer_changes_what_it_says_about_itself(model: keras.Model) -> None:
    def facts() -> list[Any]:
        return [
            (layer.built, layer.name, layer.dtype_policy.name, layer.trainable, layer.losses == [])
            for _, layer in LayerPaths(model)
        ]

    before = facts()
    look(model)
    assert facts() == before


def test_trainable_and_frozen_layers_stay(model: keras.Model) -> None:
    part(model, L.Dense).trainable = False
    look(model)
    assert part(model, L.Dense).trainable is False


def test_a_failed_look_restores_too(model: keras.Model) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise KeyError("mine")

    counting = part(model, Counting)
    model.parts[-1].call = fail
    before, expected = counting.times, random.Random(1).random()
    random.seed(1)
    with pytest.raises(KeyError, match="mine"):
        look(model)
    assert (counting.times, random.random()) == (before, expected)


class OwnState(L.Layer):
    """Keeps state where Keras does not look."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.looks = LooksAtValues()
        self.python = random.Random(1)
        self.numpy = np.random.default_rng(1)
        self.old_numpy = np.random.RandomState(1)
        self.tensorflow = tf.random.Generator.from_seed(1)
        self.counter = tf.Variable(0)
        self.nested = {"counters": [tf.Variable(0)]}

    def call(self, inputs: Any) -> Any:
        self.counter.assign_add(1)
        self.nested["counters"][0].assign_add(1)
        drawn = self.python.random() + self.numpy.random() + self.old_numpy.rand()
        return self.looks(inputs) + drawn + self.tensorflow.uniform(())


def test_generators_and_variables_that_keras_does_not_track_stay() -> None:
    def state(layer: Any) -> list[Any]:
        numbers = layer.counter.numpy(), layer.nested["counters"][0].numpy()
        return [
            *numbers,
            layer.python.getstate(),
            layer.numpy.bit_generator.state,
            str(layer.old_numpy.get_state()),
            layer.tensorflow.state.numpy().tolist(),
        ]

    layer = OwnState()
    model = InARow(layer)
    model(X)
    before = state(layer)
    look(model)
    assert state(layer) == before


def test_weights_that_call_assigns_stay() -> None:
    # It writes the kernel itself, which is trainable.
    model = InARow(LooksAtValues(), L.SpectralNormalization(L.Dense(3)))
    model(X)
    before = [weight.copy() for weight in model.get_weights()]
    look(model)
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def trained(kind: str, *, looked_at: bool) -> list[np.ndarray]:
    reseed(11)
    if kind == "functional":
        inputs = keras.Input((4,))
        hidden = L.Dropout(0.5)(L.BatchNormalization()(L.Dense(8, "relu")(inputs)))
        model = keras.Model(inputs, L.Dense(1)(hidden))
    else:
        model = Stateful(eager=kind == "eager")
        model(X)
    model.compile("adam", "mse", metrics=["mae"], run_eagerly=kind == "eager")
    if looked_at:
        look(model)
    model.fit(X, Y, epochs=2, batch_size=4, verbose=0)
    if looked_at:
        look(model)
    model.fit(X, Y, epochs=1, batch_size=4, verbose=0)
    return [np.asarray(weight) for weight in model.get_weights()]


@pytest.mark.parametrize("kind", ["functional", "graph", "eager"])
def test_a_model_that_was_looked_at_trains_to_the_same_weights(kind: str) -> None:
    plain, seen = trained(kind, looked_at=False), trained(kind, looked_at=True)
    assert all(np.array_equal(a, b) for a, b in zip(plain, seen, strict=True))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_a_mixed_model_trains_to_the_same_weights(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    plain, seen = trained("functional", looked_at=False), trained("functional", looked_at=True)
    assert all(np.array_equal(a, b) for a, b in zip(plain, seen, strict=True))


def test_an_unbuilt_model_gets_the_weights_that_building_gives() -> None:
    def build(looked_at: bool) -> list[np.ndarray]:
        reseed(5)
        model = keras.Sequential([L.Dense(3), L.Dense(2)])
        if looked_at:
            look(model)
        else:
            model.build((None, 4))
        return [np.asarray(weight) for weight in model.get_weights()]

    plain, seen = build(False), build(True)
    assert all(np.array_equal(a, b) for a, b in zip(plain, seen, strict=True))


def test_a_layer_created_lazily_in_call_is_usable_afterwards(eager: bool) -> None:
    class Lazy(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.inner: Any = None
            self.looks = LooksAtValues() if eager else L.Dense(2)

        def call(self, inputs: Any) -> Any:
            if self.inner is None:
                self.inner = L.Dense(2)
            return self.inner(self.looks(inputs))

    model = Lazy()
    look(model)
    assert model(X).shape == (8, 2)


def test_another_thread_draws_on_from_tensorflows_sequence() -> None:
    tf.random.set_seed(5)
    expected = float(tf.random.uniform(()))
    tf.random.set_seed(5)
    drawn: list[float] = []
    with undisturbed(LayerPaths(keras.Sequential([keras.Input((2,)), L.ReLU()]))):
        thread = threading.Thread(target=lambda: drawn.append(float(tf.random.uniform(()))))
        thread.start()
        thread.join()
    assert drawn == [expected]


class Queues(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.recent = collections.deque([1], maxlen=3)
        self.totals = np.zeros(2)

    def call(self, inputs: Any) -> Any:
        self.recent.append(2)
        self.totals += 1
        return inputs


def test_queues_and_arrays_stay() -> None:
    model = Queues()
    model(X)
    trace_modes(model, inputs=X)
    assert list(model.recent) == [1, 2]
    assert model.totals.tolist() == [1, 1]
