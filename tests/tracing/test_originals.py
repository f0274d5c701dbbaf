"""Which operation of the forward pass an operation of the backward pass belongs to."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_amp_kit import _keras
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_trace import StepTrace


def traced(model: keras.Model, x: Any, *, loss: Any = "mse") -> StepTrace:
    return trace_step(
        model, (x, np.zeros(model.compute_output_shape(x.shape), np.float32)), loss=loss
    )


def step_of(*layers: keras.layers.Layer, shape: tuple[int, ...] = (3,)) -> StepTrace:
    model = keras.Sequential([keras.Input(shape), *layers])
    return traced(model, np.ones((2, *shape), np.float32))


def origins(step: StepTrace, op_type: str) -> set[tuple[str, str]]:
    """Path and type of what the gradient's operations of one type belong to at last."""
    chains = [
        list(step.originals(op))
        for op in step.trace.operations
        if op.type == op_type and step.is_gradient(op)
    ]
    ends = [chain[-1] for chain in chains if chain]
    return {(getattr(step.trace.call_of(op), "path", ""), op.type) for op in ends}


@pytest.mark.parametrize(
    ("op_type", "origin"),
    [
        ("ReluGrad", ("hidden", "Relu")),
        ("MatMul", ("hidden", "MatMul")),
        ("BiasAddGrad", ("hidden", "BiasAdd")),
        ("SigmoidGrad", ("out", "Sigmoid")),
        ("RealDiv", ("@loss", "Mean")),
    ],
)
def test_a_gradient_belongs_to_the_operation_that_it_is_of(
    op_type: str, origin: tuple[str, str]
) -> None:
    hidden = keras.layers.Dense(4, activation="relu", name="hidden")
    step = step_of(hidden, keras.layers.Dense(1, activation="sigmoid", name="out"))
    assert origin in origins(step, op_type)


def test_products_of_both_layers_are_told_apart() -> None:
    step = step_of(keras.layers.Dense(4, name="a"), keras.layers.Dense(1, name="b"))
    assert origins(step, "MatMul") == {("a", "MatMul"), ("b", "MatMul")}


def test_layers_of_one_kind_without_weights_are_told_apart() -> None:
    layers = keras.layers.Activation("tanh", name="x"), keras.layers.Activation("tanh", name="y")
    step = step_of(keras.layers.Dense(4), *layers)
    assert origins(step, "TanhGrad") == {("x", "Tanh"), ("y", "Tanh")}


def test_a_gradient_in_a_loop_belongs_to_the_cell() -> None:
    step = step_of(keras.layers.SimpleRNN(2, name="rnn"), shape=(4, 3))
    assert origins(step, "TanhGrad") == {("rnn/cell", "Tanh")}


def test_the_sum_of_several_gradients_belongs_to_what_reads_it() -> None:
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(3, activation="tanh", name="hidden")(inputs)
    first, second = keras.layers.Dense(3)(hidden), keras.layers.Dense(3)(hidden)
    step = traced(keras.Model(inputs, first * second), np.ones((2, 3), np.float32))
    assert ("hidden", "Tanh") in origins(step, "AddN")


@tf.custom_gradient
def own_gradient(x: Any) -> Any:
    return x / 2, tf.exp


class Own(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return own_gradient(x)


def test_a_gradient_that_the_user_wrote_belongs_to_the_layer() -> None:
    step = step_of(keras.layers.Dense(3), Own(name="own"))
    assert {path for path, _ in origins(step, "Exp")} == {"own"}


class Again(keras.layers.Layer):
    """Runs its part of the forward pass a second time for the gradient."""

    def call(self, x: Any) -> Any:
        return tf.recompute_grad(lambda value: tf.tanh(tf.exp(value)))(x)


def test_the_gradient_of_what_is_run_again_belongs_to_the_layer() -> None:
    step = step_of(keras.layers.Dense(3), Again(name="again"))
    assert {path for path, _ in origins(step, "TanhGrad")} == {"again"}


def test_what_is_run_again_comes_before_the_forward_pass() -> None:
    step = step_of(keras.layers.Dense(3), Again(name="again"))
    (grad,) = [op for op in step.trace.live if op.type == "TanhGrad"]
    assert [step.is_gradient(op) for op in step.originals(grad)] == [True, False]


def test_nothing_is_remembered_after_the_trace() -> None:
    step_of(keras.layers.Dense(3))
    with tf.Graph().as_default(), tf.GradientTape() as tape:
        x = tf.constant(1.0)
        tape.watch(x)
        gradient = tape.gradient(tf.exp(x), x)
    assert _keras.original_operation(gradient.op) is None
