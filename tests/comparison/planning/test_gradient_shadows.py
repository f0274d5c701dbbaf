"""Errors of units in the weights' gradients, against models built with one unit in half."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.probing.sampling import Probing
from tf_amp_kit.comparison.planning.running.runs import Runs
from tf_amp_kit.comparison.planning.units import find_units
from tf_amp_kit.data import Batch, batch_specs
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.step_phases import GRADIENTS

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(2, 64, 12)).astype(np.float32), RNG.normal(size=(2, 64, 8))
BATCHES = [(x, y.astype(np.float32)) for x, y in zip(X, Y, strict=True)]
TOKENS = RNG.integers(5, size=(2, 64, 6)).astype(np.int32)

# What float16 needs for gradients of about 0.01 to be normal numbers.
SCALE = 1024.0

# Passes per batch are four times as many: scores then scatter by less than 4 %. What is
# rounded beside float32 is not quite what is rounded in its place, so that they agree only
# over many numbers: of wide layers and 64 samples.
NUM_PROBES = 32

Dtypes = Callable[[str], str]
Build = Callable[[Dtypes], keras.Model]


def dense(units: int, name: str, dtype: Dtypes, **options: Any) -> layers.Layer:
    return layers.Dense(units, "tanh", name=name, dtype=dtype(name), **options)


def sequence(shape: tuple[int, ...], *stack: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *stack])


def chain(dtype: Dtypes) -> keras.Model:
    stack = dense(16, "a", dtype), dense(16, "b", dtype), dense(8, "c", dtype)
    return sequence((12,), *stack)


def called_twice(dtype: Dtypes) -> keras.Model:
    shared = dense(12, "a", dtype)
    return sequence((12,), shared, dense(12, "b", dtype), shared, dense(8, "c", dtype))


def normalized(dtype: Dtypes) -> keras.Model:
    norm = layers.BatchNormalization(name="norm", dtype=dtype("norm"))
    return sequence((12,), dense(16, "a", dtype), norm, dense(8, "c", dtype))


def frozen(dtype: Dtypes) -> keras.Model:
    model = chain(dtype)
    model.get_layer("b").trainable = False
    return model


def frozen_first(dtype: Dtypes) -> keras.Model:
    model = chain(dtype)
    model.get_layer("a").trainable = False
    return model


def embedded(dtype: Dtypes) -> keras.Model:
    rows = layers.Embedding(5, 6, name="rows", dtype=dtype("rows"))
    flat = layers.Flatten(name="flat", dtype=dtype("flat"))
    return keras.Sequential([keras.Input((6,), dtype="int32"), rows, flat, dense(8, "c", dtype)])


class Block(layers.Layer):
    def __init__(self, dtype: Dtypes) -> None:
        super().__init__(name="block", dtype=dtype("block"))
        self.a, self.b = (
            layers.Dense(12, "tanh", name=name, dtype=dtype(f"block/{name}")) for name in "ab"
        )

    def build(self, shape: Any) -> None:
        self.a.build(shape)
        self.b.build((None, 12))

    def call(self, x: Any) -> Any:
        # An operator would compute in what `b` returns, whatever the block is in.
        return keras.ops.tanh(keras.ops.cast(self.b(self.a(x)), self.compute_dtype) * 1.3)


def composite(dtype: Dtypes) -> keras.Model:
    return sequence((12,), Block(dtype), dense(8, "c", dtype))


class Tied(layers.Layer):
    """Multiplies by the kernel of another layer, the other way around."""

    def __init__(self, other: layers.Layer, **options: Any) -> None:
        super().__init__(**options)
        self.other_kernel = other.kernel

    def call(self, x: Any) -> Any:
        return keras.ops.tanh(keras.ops.matmul(x, keras.ops.transpose(self.other_kernel)))


def tied(dtype: Dtypes) -> keras.Model:
    a = dense(16, "a", dtype)
    a.build((None, 12))
    middle = Tied(a, name="tied", dtype=dtype("tied"))
    return sequence((12,), a, dense(16, "b", dtype), middle, dense(8, "c", dtype))


def known(build: Build, dtype: Dtypes) -> keras.Model:
    """The same weights each time."""
    model, rng = build(dtype), np.random.default_rng(3)
    for one in model.weights:
        fan_in = one.shape[0] if len(one.shape) == 2 else 1
        value = rng.uniform(0.2, 0.6, one.shape) * 2 / math.sqrt(fan_in + 3)
        one.assign(value if "variance" in one.path else value * rng.choice([-1.0, 1.0], one.shape))
    return model


def only(half: str) -> Dtypes:
    """One unit in half precision, with all in it, and the others in float32."""

    def dtype(path: str) -> str:
        is_half = path == half or path.startswith(f"{half}/")
        return "mixed_float16" if is_half else "float32"

    return dtype


def batches_of(build: Build) -> list[tuple[Any, Any]]:
    if build is embedded:
        return [(one, y) for one, (_, y) in zip(TOKENS, BATCHES, strict=True)]
    return BATCHES


def gradients_of(model: keras.Model, batches: list[tuple[Any, Any]]) -> Any:
    """All gradients of all batches, as a loop of a user's computes them."""

    @tf.function
    def step(x: Any, y: Any) -> Any:
        variables = [one.value for one in model.trainable_variables]
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(x, training=False), tf.float32)
            loss = tf.reduce_mean(tf.square(outputs - y)) * SCALE
        return [tf.convert_to_tensor(one) for one in tape.gradient(loss, variables)]

    found = [one for x, y in batches for one in step(tf.constant(x), tf.constant(y))]
    return np.concatenate([np.ravel(one) for one in found]).astype(np.float64) / SCALE


def error_alone(build: Build, path: str) -> float:
    batches = batches_of(build)
    wide = gradients_of(known(build, lambda _: "float32"), batches)
    half = gradients_of(known(build, only(path)), batches)
    return float(np.linalg.norm(half - wide) / np.linalg.norm(wide))


def effects_of(build: Build, num_probes: int = NUM_PROBES, seed: int = 0) -> Effects:
    model = known(build, lambda _: "mixed_float16")
    batches = [Batch(*map(tf.constant, one)) for one in batches_of(build)]
    runs = Runs(model, batch_specs(batches_of(build)[0]), "mse", DrawingLayers((), ()))
    step = runs.with_pins((), GRADIENTS, None).step
    wide = gradients_of(known(build, lambda _: "float32"), batches_of(build))
    probing = Probing(
        runs,
        find_units(step, runs.paths),
        "float16",
        "gradient",
        weights={"0": 1.0},
        inverse_norm=1 / float(np.linalg.norm(wide)),
        loss_scale=SCALE,
    )
    return probing.effects(batches, num_probes, seed, {})


@pytest.mark.parametrize(
    ("build", "paths"),
    [
        (chain, {"a", "b", "c"}),
        (called_twice, {"a", "b", "c"}),
        (normalized, {"a", "norm", "c"}),
        (frozen, {"a", "b", "c"}),
        (frozen_first, {"a", "b", "c"}),
        (embedded, {"rows", "flat", "c"}),
        (composite, {"block", "block/a", "block/b", "c"}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_scores_are_the_gradients_errors_with_one_unit_in_half(build, paths):
    effects = effects_of(build)
    scores = {path: effects.score(path) for path in paths}
    assert scores == pytest.approx({path: error_alone(build, path) for path in paths}, rel=0.25)
    assert {unit.path for unit in effects.units} == paths


def test_weights_that_two_layers_share_do_not_spoil_the_scores_of_others():
    effects = effects_of(tied)
    found = {path: effects.score(path) for path in "bc"}
    assert found == pytest.approx({path: error_alone(tied, path) for path in "bc"}, rel=0.15)


@pytest.mark.parametrize("path", ["a", "tied"])
def test_layers_that_share_weights_have_scores_of_the_right_size(path):
    score, expected = effects_of(tied).score(path), error_alone(tied, path)
    assert expected / 2 < score < expected * 2


def test_each_batch_has_its_own_share():
    # Batches add up in squares, and each pass gives one number.
    effects = effects_of(chain, num_probes=2)
    assert effects.errors["a"].shape == (2 * 2 * 4,)


def test_a_seed_chooses_the_signs():
    once, again, other = (effects_of(chain, 1, seed).errors["b"] for seed in (3, 3, 4))
    np.testing.assert_array_equal(once, again)
    assert not np.allclose(np.abs(once), np.abs(other), rtol=1e-2)


def test_a_frozen_layer_has_no_share_of_its_own_weights():
    # The last layer is frozen and the one before trains: no gradient of its own is taken.
    def frozen_last(dtype: Dtypes) -> keras.Model:
        model = chain(dtype)
        model.get_layer("c").trainable = False
        return model

    assert effects_of(frozen_last).score("c") == pytest.approx(
        error_alone(frozen_last, "c"), rel=0.15
    )


def test_gradients_that_overflow_on_the_way_back_are_told():
    class Steep(layers.Layer):
        """Is zero whatever it takes, and has a slope that float16 cannot hold."""

        def call(self, x: Any) -> Any:
            return keras.ops.multiply(keras.ops.multiply(x - keras.ops.stop_gradient(x), 6e4), 6e4)

    model = sequence((4,), layers.Dense(4, name="a"), Steep(name="steep", dtype="mixed_float16"))
    for layer in model.layers:
        layer.dtype_policy = "mixed_float16"
    data = np.ones((2, 4), np.float32), np.ones((2, 4), np.float32)
    runs = Runs(model, batch_specs(data), "mse", DrawingLayers((), ()))
    units = find_units(runs.with_pins((), GRADIENTS, None).step, runs.paths)
    probing = Probing(runs, units, "float16", "gradient", {"0": 1.0})
    found = probing.effects([Batch(*map(tf.constant, data))], 1, 0, {})
    # What `steep` hands back, 3.6e9 times what it takes, overflows in `a` as well.
    assert set(found.nonfinite) == {"a", "steep"}
