"""One path for a layer, whoever builds the model, wherever, and however often."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tf_amp_kit.tracing.model_graph import trace_modes
from tf_amp_kit.tracing.paths import LayerPaths, auto_name, join

L = keras.layers


def paths_of(model: Any) -> list[str]:
    return [path for path, _ in LayerPaths(model)]


def called_paths(model: Any, inputs: Any = None) -> list[str]:
    (trace,) = trace_modes(model, inputs=inputs, modes=[False])
    return list(dict.fromkeys(call.path for call in trace.calls))


@keras.saving.register_keras_serializable("test_paths")
class Block(L.Layer):
    """Holds sublayers as an attribute, a private one, a list, a dictionary and a tuple."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first = L.Dense(4)
        self._hidden = L.Dropout(0.1)
        self.stack = [L.Dense(4), [L.Dense(4, name="mine")]]
        self.by_name = {"norm": L.LayerNormalization()}
        self.pair = (L.Dense(4), L.ReLU())

    def build(self, input_shape: Any) -> None:
        dense = self.first, self.stack[0], self.stack[1][0], self.pair[0]
        for layer in (*dense, self.by_name["norm"]):
            layer.build(input_shape)

    def call(self, inputs: Any) -> Any:
        hidden = self._hidden(self.first(inputs))
        hidden = self.stack[1][0](self.stack[0](hidden))
        hidden = self.by_name["norm"](hidden)
        return self.pair[1](self.pair[0](hidden))


BLOCK_PATHS = [
    "",
    "by_name/norm",
    "first",
    "hidden",
    "pair/0",
    "pair/1",
    "stack/0",
    "stack/1/0",
]


@keras.saving.register_keras_serializable("test_paths")
class Subclassed(keras.Model):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.blocks = [Block(), Block()]
        self.attention = L.MultiHeadAttention(2, 2)
        self.head = keras.Sequential([L.Dense(3), L.Dense(2)])

    def call(self, inputs: Any) -> Any:
        for block in self.blocks:
            inputs = block(inputs)
        return self.head(self.attention(inputs, inputs))


def sequential() -> keras.Model:
    return keras.Sequential([keras.Input((5, 4)), L.Dense(4), L.Dense(4), Block(), L.ReLU()])


def functional() -> keras.Model:
    inputs = keras.Input((5, 4))
    shared = L.Dense(4, name="shared")
    hidden = Block()(shared(shared(inputs)))
    inner = keras.Sequential([keras.Input((5, 4)), L.Dense(4), L.Dense(3, name="named")])
    hidden = L.Bidirectional(L.LSTM(3, return_sequences=True))(inner(hidden))
    hidden = L.TimeDistributed(L.Dense(4))(hidden)
    hidden = L.RNN([L.GRUCell(3), L.LSTMCell(3)], return_sequences=True)(hidden)
    return keras.Model(inputs, L.MultiHeadAttention(2, 2)(hidden, hidden))


def subclassed() -> keras.Model:
    model = Subclassed()
    model(np.ones((2, 5, 4), "float32"))
    return model


BUILDERS = [sequential, functional, subclassed]


def test_the_model_itself_has_the_empty_path() -> None:
    model = sequential()
    assert LayerPaths(model).of(model) == ""


def test_automatic_names_become_class_and_position() -> None:
    L.Dense(1)  # counts Keras's own names up
    assert paths_of(sequential())[:4] == ["", "dense", "dense_1", "block"]


def test_given_names_are_kept() -> None:
    model = keras.Sequential([keras.Input((4,)), L.Dense(1, name="encoder"), L.Dense(1)])
    assert paths_of(model) == ["", "encoder", "dense"]


def test_inputs_have_no_path() -> None:
    assert not [path for path in paths_of(functional()) if "input" in path]


def test_sublayers_are_named_by_the_attribute_that_holds_them() -> None:
    assert sorted(paths_of(Block())) == BLOCK_PATHS


def test_nested_paths_are_chains() -> None:
    expected = [f"blocks/{n}/{path}".rstrip("/") for n in (0, 1) for path in BLOCK_PATHS]
    found = paths_of(subclassed())
    assert sorted(path for path in found if path.startswith("blocks")) == sorted(expected)


def test_the_softmax_of_an_attention_has_a_path() -> None:
    # Keras itself never gives it one: it is not built.
    assert "attention/softmax" in paths_of(subclassed())


def test_a_nested_model_counts_its_own_layers() -> None:
    assert {"sequential", "sequential/dense", "sequential/named"} <= set(paths_of(functional()))


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (L.LSTM(2), ["", "cell"]),
        (L.RNN(L.GRUCell(2)), ["", "cell"]),
        (L.Bidirectional(L.LSTM(2)), ["backward_layer", "backward_layer/cell"]),
        (L.TimeDistributed(L.Dense(2)), ["", "layer"]),
    ],
    ids=["lstm", "rnn", "bidirectional", "time_distributed"],
)
def test_wrapped_layers_have_paths(layer: Any, expected: list[str]) -> None:
    assert set(expected) <= set(paths_of(layer))


def test_stacked_cells_are_numbered() -> None:
    found = paths_of(L.RNN([L.GRUCell(3), L.LSTMCell(3)]))
    assert found == ["", "cell", "cell/cells/0", "cell/cells/1"]


def test_a_shared_layer_has_one_path() -> None:
    assert paths_of(functional()).count("shared") == 1


def test_a_layer_in_two_places_has_the_path_of_the_first() -> None:
    class Twice(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.one = L.Dense(2)
            self.two = self.one

    assert paths_of(Twice()) == ["", "one"]


def test_layers_of_one_name_in_a_plain_list_stay_apart() -> None:
    class Twins(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.pair = [L.Dense(2, name="twin"), L.Dense(2, name="twin")]

    assert paths_of(Twins()) == ["", "pair/0", "pair/1"]


@pytest.mark.parametrize("build", BUILDERS)
def test_every_path_belongs_to_one_layer(build: Callable[[], Any]) -> None:
    pairs = list(LayerPaths(build()))
    assert len({path for path, _ in pairs}) == len({id(layer) for _, layer in pairs}) == len(pairs)


@pytest.mark.parametrize("build", BUILDERS)
def test_the_paths_cover_all_layers_that_keras_knows(build: Callable[[], Any]) -> None:
    model = build()
    known = {id(layer) for _, layer in LayerPaths(model)}
    wanted = [s for s in model._flatten_layers() if not isinstance(s, L.InputLayer)]
    assert [layer.name for layer in wanted if id(layer) not in known] == []


@pytest.mark.parametrize("build", BUILDERS)
def test_a_second_build_has_the_same_paths(build: Callable[[], Any]) -> None:
    assert paths_of(build()) == paths_of(build())


@pytest.mark.parametrize("build", BUILDERS)
def test_clearing_the_session_changes_no_path(build: Callable[[], Any]) -> None:
    before = paths_of(build())
    keras.utils.clear_session(free_memory=False)
    assert paths_of(build()) == before


@pytest.mark.parametrize("build", BUILDERS)
def test_a_call_and_a_trace_change_no_path(build: Callable[[], Any]) -> None:
    model = build()
    before = paths_of(model)
    model(np.ones((2, 5, 4), "float32"))
    trace_modes(model)
    assert paths_of(model) == before


def test_training_changes_no_path() -> None:
    model = sequential()
    before = paths_of(model)
    model.compile("adam", "mse", metrics=["mae"])
    data = np.ones((2, 5, 4), "float32")
    model.fit(data, model(data), verbose=0)
    assert paths_of(model) == before


@pytest.mark.parametrize("build", BUILDERS)
def test_a_loaded_model_has_the_same_paths(build: Callable[[], Any], tmp_path: Path) -> None:
    model = build()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert paths_of(loaded) == paths_of(model)


@pytest.mark.parametrize("build", [sequential, functional])
def test_a_cloned_model_has_the_same_paths(build: Callable[[], Any]) -> None:
    model = build()
    assert paths_of(keras.models.clone_model(model)) == paths_of(model)


def test_another_process_has_the_same_paths() -> None:
    code = (
        "from tests.tracing.test_paths import BUILDERS, L, paths_of\n"
        "[L.Dense(1) for _ in range(3)]\n"
        "print([paths_of(build()) for build in reversed(BUILDERS)])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    expected = [paths_of(build()) for build in reversed(BUILDERS)]
    assert done.stdout.strip().splitlines()[-1] == str(expected)


class CreatesInCall(L.Layer):
    def call(self, inputs: Any) -> Any:
        return L.ReLU()(L.Activation("tanh", name="squash")(L.ReLU()(inputs)))


def test_layers_created_in_a_call_get_paths_below_their_owner() -> None:
    model = keras.Sequential([keras.Input((4,)), CreatesInCall()])
    owner = "creates_in_call"
    expected = ["", owner, f"{owner}/re_lu", f"{owner}/squash", f"{owner}/re_lu#2"]
    assert called_paths(model) == expected


def test_layers_created_in_a_call_get_the_same_paths_each_time() -> None:
    model = keras.Sequential([keras.Input((4,)), CreatesInCall()])
    first, second = trace_modes(model)
    assert [call.path for call in first.calls] == [call.path for call in second.calls]


class Holder:
    """A plain Python object that Keras does not look into."""

    def __init__(self) -> None:
        self.dense = L.Dense(4)


def test_layers_in_plain_objects_get_a_path_when_they_are_called() -> None:
    class Hiding(L.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.holder = Holder()

        def call(self, inputs: Any) -> Any:
            return self.holder.dense(inputs)

    model = keras.Sequential([keras.Input((4,)), Hiding()])
    assert called_paths(model) == ["", "hiding", "hiding/dense"]


def test_operations_between_layers_are_named_below_their_owner() -> None:
    inputs = keras.Input((4,))
    outputs = keras.ops.exp(keras.ops.exp(L.Dense(4)(inputs))) + 1.0
    model = keras.Model(inputs, outputs)
    assert called_paths(model) == ["", "dense", "@exp", "@exp_1", "@add"]


@pytest.mark.parametrize(
    "layer",
    [L.Conv2DTranspose(1, 1), L.LSTM(1), L.GlobalAveragePooling1D(), L.ReLU(), L.Dense(1)],
)
def test_an_automatic_name_is_the_one_that_keras_gives(layer: Any) -> None:
    keras_name = layer.name.rstrip("0123456789").rstrip("_")
    assert auto_name(type(layer).__name__).rstrip("0123456789") in (keras_name, layer.name)


def test_joining_below_the_model_adds_no_slash() -> None:
    assert (join("", "a"), join("a", "b")) == ("a", "a/b")


def test_a_copy_keeps_strays_to_itself() -> None:
    paths = LayerPaths(sequential())
    stray = L.Dense(1)
    paths.copy().add_stray(stray, "block")
    assert paths.of(stray) is None
