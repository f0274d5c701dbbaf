"""A skipped step gives back what the forward pass updated; seeds may go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_amp_kit as amp
from tests.precision.loss_scaling.helpers import (
    BAD,
    GOOD,
    INF,
    LABELS,
    bits,
    constant,
    fit,
    in_each_mode,
    scaled,
)
from tests.precision.loss_scaling.layers import Codebook, RunningMean, Sublayers

layers = keras.layers

STATEFUL: dict[str, Callable[[], list[Any]]] = {
    "BatchNormalization": lambda: [layers.BatchNormalization(momentum=0.5)],
    "without scale and center": lambda: [layers.BatchNormalization(scale=False, center=False)],
    "SpectralNormalization": lambda: [layers.SpectralNormalization(layers.Dense(2))],
    "Dropout": lambda: [layers.BatchNormalization(), layers.Dropout(0.5)],
    "running mean": lambda: [RunningMean()],
    "codebook": lambda: [Codebook()],
    "sublayers": lambda: [Sublayers()],
    "nested model": lambda: [keras.Sequential([layers.BatchNormalization(momentum=0.5)])],
    "frozen": lambda: [layers.BatchNormalization(trainable=False), layers.BatchNormalization()],
}


def model_with(*stateful: Any, **kwargs: Any) -> keras.Model:
    chain = [keras.Input((2,)), layers.Dense(2), *stateful, layers.Dense(1)]
    return keras.Sequential(chain, **kwargs)


def trained(stateful: list[Any], *batches: np.ndarray, **how: Any) -> tuple[keras.Model, Any]:
    keras.utils.set_random_seed(4)
    model, optimizer = model_with(*stateful), scaled(hysteresis=9, inner=keras.optimizers.Adam())
    model.compile(optimizer, "mse", **how)
    optimizer.protect(model)
    fit(model, *batches)
    return model, optimizer


@pytest.mark.parametrize("name", STATEFUL)
def test_bad_batches_leave_no_trace_in_state(name: str) -> None:
    model, optimizer = trained(STATEFUL[name](), GOOD, run_eagerly=True)
    before = bits(model, optimizer)
    fit(model, BAD, BAD)
    assert optimizer.loss_scale_state().skipped_steps == 2
    assert bits(model, optimizer) == before
    fit(model, GOOD)
    assert bits(model) != before[: len(bits(model))]


HOW = ({"run_eagerly": True}, {"jit_compile": True}, {"steps_per_execution": 3})


@pytest.mark.parametrize("how", HOW, ids=lambda how: next(iter(how)))
def test_bad_batches_leave_no_trace_however_the_model_is_compiled(how: dict[str, Any]) -> None:
    stateful = STATEFUL["BatchNormalization"]
    with_bad = trained(stateful(), GOOD, BAD, GOOD * 2, BAD, BAD, GOOD, **how)
    without = trained(stateful(), GOOD, GOOD * 2, GOOD, **how)
    assert bits(*with_bad) == bits(*without)


def test_one_float16_overflow_leaves_the_statistics_of_a_clean_run() -> None:  # L4
    keras.config.set_dtype_policy("mixed_float16")
    rng = np.random.default_rng(0)
    clean = [rng.normal(size=(4, 2)).astype(np.float32) for _ in range(200)]
    overflowing = np.full((4, 2), 7e4, np.float32)  # infinity in float16
    stateful = STATEFUL["BatchNormalization"]
    # Small enough a loss that the clean batches do not overflow at the first scale.
    with_bad, optimizer = trained(stateful(), overflowing, *clean, loss_weights=2.0**-10)
    without, _ = trained(stateful(), *clean, loss_weights=2.0**-10)
    assert optimizer.loss_scale_state().skipped_steps == 1
    assert bits(with_bad) == bits(without)
    assert np.isfinite(with_bad.evaluate(GOOD, LABELS, verbose=0))


def test_a_bad_first_step_gives_back_the_initial_state() -> None:
    model, _ = trained(STATEFUL["BatchNormalization"](), BAD)
    normalization = model.layers[1]
    assert normalization.moving_mean.numpy().tolist() == [0.0, 0.0]
    assert normalization.moving_variance.numpy().tolist() == [1.0, 1.0]


def test_integer_seeds_may_advance_but_are_not_touched_otherwise() -> None:
    model, _ = trained([layers.BatchNormalization(), layers.Dropout(0.5)], GOOD)
    (seed,) = [v for v in model.variables if "seed" in v.path]
    before = seed.numpy().tolist()
    fit(model, BAD)
    assert seed.numpy().tolist() != before


def test_state_of_a_model_in_half_precision_is_given_back() -> None:
    keras.config.set_dtype_policy("float16")
    model, optimizer = trained(STATEFUL["running mean"](), GOOD)
    before = bits(model, optimizer)
    fit(model, BAD)
    assert bits(model, optimizer) == before


def test_batch_renormalization_and_shared_layers_are_given_back() -> None:
    shared = layers.BatchNormalization(momentum=0.5)
    inputs = keras.Input((2,))
    outputs = layers.Dense(1)(layers.Add()([shared(inputs), shared(layers.Dense(2)(inputs))]))
    model, optimizer = keras.Model(inputs, outputs), scaled()
    model.compile(optimizer, "mse")
    assert [optimizer.protect(model).num_new for _ in range(2)] == [2, 0]
    fit(model, GOOD)
    before = bits(model, optimizer)
    fit(model, BAD)
    assert bits(model, optimizer) == before


def test_a_subclassed_model_with_state_of_its_own_is_given_back() -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(1)
            self.largest = self.add_weight(shape=(), initializer="zeros", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            self.largest.assign(keras.ops.maximum(self.largest, keras.ops.max(inputs)))
            return self.dense(inputs)

    model, optimizer = Model(), scaled()
    model(np.zeros_like(GOOD))
    model.compile(optimizer, "mse")
    optimizer.protect(model)
    fit(model, GOOD, BAD)
    assert float(model.largest.numpy()) == 1.0


def test_what_is_not_protected_is_not_given_back() -> None:
    model, optimizer = model_with(layers.BatchNormalization()), scaled()
    model.compile(optimizer, "mse")
    with pytest.warns(amp.errors.LossScaleWarning, match=r"^1 layer keeps moving statistics"):
        fit(model, BAD)
    assert not np.isfinite(model.layers[1].moving_mean.numpy()).all()


@in_each_mode
def test_single_variables_and_lists_can_be_protected(mode: str) -> None:
    kept, lost = keras.Variable(1.0, trainable=False), tf.Variable(1.0)
    also = [tf.Variable(2.0), [keras.Variable(3.0)]]
    weight, optimizer = keras.Variable([1.0]), scaled()
    optimizer.build([weight])
    assert optimizer.protect(kept, also).num_variables == 3

    def step(grad: Any) -> None:
        for one in (kept, lost, also[0], also[1][0]):
            one.assign(grad[0] + 5)
        optimizer.apply([grad], [weight])

    (tf.function(step, jit_compile=mode == "jit") if mode != "eager" else step)(constant(INF))
    assert [float(one.numpy()) for one in (kept, *also[:1], *also[1])] == [1.0, 2.0, 3.0]
    assert lost.numpy() == INF


def test_protection_tells_its_size() -> None:
    optimizer = scaled()
    protection = optimizer.protect(model_with(layers.BatchNormalization()))
    # A mean and a variance of two features, in float32.
    assert (protection.num_variables, protection.size_bytes) == (2, 16)
    assert str(protection) == "2 variables protected, 16 bytes of copies"


def test_frozen_weights_are_not_copied() -> None:
    model = model_with(layers.BatchNormalization())
    model.trainable = False
    assert scaled().protect(model).num_variables == 2


def test_a_model_that_is_not_built_cannot_be_protected() -> None:
    model = keras.Sequential([layers.BatchNormalization()], name="unbuilt")
    with pytest.raises(amp.errors.ModelError, match=r"^'unbuilt' has no variables to protect yet"):
        scaled().protect(model)


@pytest.mark.parametrize("target", ["model", None, 3, keras.optimizers.SGD])
def test_only_models_layers_and_variables_can_be_protected(target: Any) -> None:
    message = r"^Expected a model, a layer, a variable or a list of these to protect\. Received: "
    with pytest.raises(amp.errors.ModelError, match=message):
        scaled().protect(target)


def test_copies_are_not_saved(tmp_path: Any) -> None:
    sizes = []
    for is_protected in (False, True):
        model, optimizer = model_with(layers.BatchNormalization()), scaled()
        model.compile(optimizer, "mse")
        optimizer.build(model.trainable_variables)
        if is_protected:
            optimizer.protect(model)
        names = [
            name
            for name, _ in tf.train.list_variables(
                tf.train.Checkpoint(optimizer=optimizer, model=model).save(str(tmp_path / "c"))
            )
        ]
        sizes.append((len(names), len(optimizer.variables)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU, layers.SimpleRNN])
def test_the_states_of_a_stateful_rnn_are_given_back(kind: Any) -> None:
    optimizer, recurrent = scaled(), kind(2, stateful=True)
    model = keras.Sequential([keras.Input((2, 1), batch_size=4), recurrent, keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    optimizer.protect(model)
    fit(model, GOOD[..., None])
    before = bits(*keras.tree.flatten(recurrent.states))
    fit(model, BAD[..., None])
    assert bits(*keras.tree.flatten(recurrent.states)) == before


def test_a_variable_of_tensorflow_in_a_layer_is_given_back() -> None:
    class Largest(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.largest = tf.Variable(0.0, trainable=False)

        def call(self, inputs: Any) -> Any:
            self.largest.assign(tf.reduce_max(inputs))
            return inputs

    optimizer, layer = scaled(), Largest()
    model = model_with(layer)
    model.compile(optimizer, "mse")
    optimizer.protect(model)
    fit(model, GOOD)
    before = bits(layer.largest)
    fit(model, BAD)
    assert bits(layer.largest) == before
