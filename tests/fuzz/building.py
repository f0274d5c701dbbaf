"""From a description to a Keras model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from .graphs import Graph, Node, as_config, from_config
from .operations import BINARY, IN_CALL, UNARY, WIDTH, constant, fitted

__all__ = ["batch_of", "build", "made_under"]

_NUM_IDS = 10
_OWN = ("weight", "weight kept", "tf.Variable")


@contextlib.contextmanager
def made_under(graph: Graph) -> Iterator[None]:
    """Makes a description's policy the global one for the time of a `with` block."""
    before = keras.config.dtype_policy()
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(graph.policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def batch_of(graph: Graph) -> tf.Tensor:
    """Returns two samples for a model."""
    rng = np.random.default_rng(0)
    if graph.input_dtype == "int32":
        return tf.constant(rng.integers(0, _NUM_IDS, (2, WIDTH)), "int32")
    return tf.cast(rng.normal(size=(2, WIDTH, WIDTH)), graph.input_dtype)


def build(graph: Graph) -> keras.Model:
    """Makes the model. Some styles still have to be called to be built."""
    if graph.input_dtype == "int32":
        tensor = keras.Input((WIDTH,), dtype="int32", name="ids")
        nodes = (Node("Embedding"), *graph.nodes)
    else:
        tensor = keras.Input((WIDTH, WIDTH), dtype=graph.input_dtype, name="values")
        nodes = graph.nodes
    return _model(graph.style, nodes, tensor, num_outputs=graph.num_outputs)


def _model(
    style: str, nodes: Sequence[Node], tensor: Any, dtype: str | None = None, num_outputs: int = 1
) -> keras.Model:
    if style == "subclassed":
        return Subclassed(as_config(nodes), num_outputs, dtype=dtype)
    if style == "functional":
        return keras.Model(tensor, _run(nodes, parts_of(nodes), tensor, num_outputs=num_outputs))
    start = [tensor] if style == "sequential" else []
    return keras.Sequential([*start, *map(_layer, nodes)])


def parts_of(nodes: Sequence[Node]) -> list[Any]:
    """Makes the layer of each node, None for operations."""
    made: list[Any] = []
    for node in nodes:
        usable = [one for one in made if one and not isinstance(one, layers.Embedding)]
        again = usable[-1] if usable else None
        made.append(again if node.kind == "again" else _layer(node))
    return made


def _layer(node: Node) -> Any:
    dtype = node.dtype
    match node.kind:
        case "block":
            return Block(as_config(node.inner), dtype=dtype)
        case "model":
            return _model(node.style, node.inner, keras.Input((WIDTH, WIDTH)), dtype)
        case "Embedding":
            return layers.Embedding(_NUM_IDS, WIDTH, dtype=dtype)
        case "Dense":
            return layers.Dense(WIDTH, dtype=dtype)
        case "Activation":
            return layers.Activation("sigmoid", dtype=dtype)
        case "Rescaling":
            return layers.Rescaling(0.3, 0.1, dtype=dtype)
        case "Conv1D":
            return layers.Conv1D(WIDTH, 3, padding="same", activation="relu", dtype=dtype)
        case "EinsumDense":
            return layers.EinsumDense("abc,cd->abd", (None, WIDTH), dtype=dtype)
        case "GlobalAveragePooling1D":
            return layers.GlobalAveragePooling1D(keepdims=True, dtype=dtype)
        case "AveragePooling1D":
            return layers.AveragePooling1D(2, strides=1, padding="same", dtype=dtype)
        case "Dropout" | "GaussianNoise":
            return getattr(layers, node.kind)(0.5, dtype=dtype)
        case "GroupNormalization":
            return layers.GroupNormalization(2, dtype=dtype)
        case "Normalization":
            return layers.Normalization(mean=0.1, variance=2.0, dtype=dtype)
        case "LSTM" | "GRU" | "SimpleRNN":
            return getattr(layers, node.kind)(WIDTH, return_sequences=True, dtype=dtype)
        case "Bidirectional":
            inner = layers.GRU(WIDTH // 2, return_sequences=True, dtype=dtype)
            return layers.Bidirectional(inner, dtype=dtype)
        case "TimeDistributed":
            return layers.TimeDistributed(layers.Dense(WIDTH, dtype=dtype), dtype=dtype)
        case "Dot":
            return layers.Dot(axes=(2, 1), dtype=dtype)
        case "MultiHeadAttention":
            return layers.MultiHeadAttention(2, 2, dtype=dtype)
    made = getattr(layers, node.kind, None)
    return made(dtype=dtype) if isinstance(made, type) else None


def _run(
    nodes: Sequence[Node],
    parts: Sequence[Any],
    *start: Any,
    owner: Any = None,
    training: bool | None = None,
    num_outputs: int = 1,
) -> Any:
    """Runs nodes on tensors, or on the symbolic ones of a graph model."""
    values = list(start)
    for place, (node, part) in enumerate(zip(nodes, parts, strict=True)):
        if node.is_training_only and not training:
            continue
        first = values[-1 - node.first % len(values)]
        second = values[-1 - node.second % len(values)]
        if part is not None:
            made = _called(part, first, second)
        elif node.kind in IN_CALL:
            made = IN_CALL[node.kind](first, owner)
        elif node.kind in UNARY:
            made = UNARY[node.kind](first)
        elif node.kind in BINARY:
            operand = owner.own[place] if node.constant in _OWN else _operand(node, second)
            made = BINARY[node.kind](first, operand)
        else:
            made = first
        # What comes after an Embedding has no use for the ids.
        values = [made] if node.kind == "Embedding" else [*values, fitted(made)]
    if num_outputs == 1:
        return values[-1]
    return {"main": values[-1], "side": values[-2 % len(values)]}


def _called(part: Any, first: Any, second: Any) -> Any:
    if isinstance(part, layers.MultiHeadAttention | Block):
        return part(first, second)
    takes_two = (layers.Add, layers.Multiply, layers.Concatenate, layers.Dot, layers.Attention)
    return part([first, second]) if isinstance(part, takes_two) else part(first)


def _operand(node: Node, second: Any) -> Any:
    return second if node.constant == "value" else constant(node.constant, node.kind)


def _own_weights(owner: keras.layers.Layer, nodes: Sequence[Node]) -> list[Any]:
    return [_own_weight(owner, node, place) for place, node in enumerate(nodes)]


def _own_weight(owner: keras.layers.Layer, node: Node, place: int) -> Any:
    if node.kind not in BINARY or node.constant not in _OWN:
        return None
    value = np.asarray(constant("array float32", node.kind))
    if node.constant == "tf.Variable":
        return tf.Variable(value)
    return owner.add_weight(
        name=f"own{place}",
        shape=value.shape,
        initializer=lambda shape, dtype: ops.cast(value, dtype),
        autocast=node.constant == "weight",
    )


@keras.saving.register_keras_serializable("tests.fuzz")
class Block(keras.layers.Layer):
    """A custom layer that runs nodes."""

    def __init__(self, steps: list[dict[str, Any]], **options: Any) -> None:
        super().__init__(**options)
        self.supports_masking = True
        self.steps = from_config(steps)
        self.parts = parts_of(self.steps)
        self.own = _own_weights(self, self.steps)

    def call(self, first: Any, second: Any = None, training: bool | None = None) -> Any:
        start = [first] if second is None else [second, first]
        return _run(self.steps, self.parts, *start, owner=self, training=training)

    def compute_output_shape(self, first_shape: Any, second_shape: Any = None) -> Any:
        return first_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "steps": as_config(self.steps)}


@keras.saving.register_keras_serializable("tests.fuzz")
class Subclassed(keras.Model):
    """A model whose `call` runs nodes."""

    def __init__(self, steps: list[dict[str, Any]], num_outputs: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.steps = from_config(steps)
        self.num_outputs = num_outputs
        self.parts = parts_of(self.steps)
        self.own = _own_weights(self, self.steps)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return _run(
            self.steps,
            self.parts,
            inputs,
            owner=self,
            training=training,
            num_outputs=self.num_outputs,
        )

    def get_config(self) -> dict[str, Any]:
        own = {"steps": as_config(self.steps), "num_outputs": self.num_outputs}
        return {**super().get_config(), **own}
