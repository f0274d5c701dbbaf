"""Errors of units at the outputs, against float64 and against halves rounded by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tf_amp_kit.comparison.planning.effects import Effects
from tf_amp_kit.comparison.planning.probing.sampling import Probing
from tf_amp_kit.comparison.planning.probing.shadows import Shadows
from tf_amp_kit.comparison.planning.running.runs import Runs
from tf_amp_kit.comparison.planning.units import Unit, find_units
from tf_amp_kit.data import Batch, batch_specs
from tf_amp_kit.tracing.drawing import DrawingLayers
from tf_amp_kit.tracing.paths import LayerPaths
from tf_amp_kit.tracing.running import StepRunner
from tf_amp_kit.tracing.step_graph import trace_step
from tf_amp_kit.tracing.step_phases import OUTPUTS, Observers

#: One plus this is one in float16, and so is three plus three times this three.
DELTA = 2.0**-12

near = {"rel": 1e-3}
close = {"rtol": 1e-4, "atol": 1e-14}


@pytest.fixture(autouse=True)
def _mixed() -> None:
    keras.config.set_dtype_policy("mixed_float16")


def runs_of(model: keras.Model, *data: Any, loss: Any = None) -> Runs:
    return Runs(model, batch_specs(data), loss, DrawingLayers((), ()))


def effects_of(
    model: keras.Model,
    *batches: Any,
    loss: Any = None,
    weights: Mapping[str, float] | None = None,
    probes: int = 4,
    seed: int = 0,
) -> Effects:
    """Probes all half-precision layers of a model; the output counts 1 if nothing is said."""
    batches = [one if isinstance(one, tuple) else (one,) for one in batches]
    runs = runs_of(model, *batches[0], loss=loss)
    counts = {"0": 1.0} if weights is None else weights
    metric = "output" if loss is None else "loss"
    probing = Probing(runs, layers_of(model), "float16", metric, counts)
    made = [Batch(*tf.nest.map_structure(tf.constant, one)) for one in batches]
    return probing.effects(made, probes, seed, {})


def layers_of(model: keras.Model) -> list[Unit]:
    found = {path: layer for path, layer in LayerPaths(model) if layer is not model}
    half = [path for path, layer in found.items() if layer.compute_dtype == "float16"]
    parents = {path: path.rpartition("/")[0] or None for path in half}
    return [Unit(path, type(found[path]).__name__, parents[path]) for path in half]


def squares(effects: Effects, path: str, num_probes: int = 4) -> Any:
    """The square of the error of each sample."""
    return (effects.errors[path].reshape(num_probes, -1) ** 2).sum(axis=0)


def sequence(*stack: layers.Layer, shape: tuple[int, ...] = (1,)) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *stack])


def scaled(factor: float, name: str, **options: Any) -> layers.Layer:
    return layers.Rescaling(factor, name=name, **options)


def column(*values: float) -> Any:
    return np.array(values, np.float32)[:, None]


# --- against float64 ---

X = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


def known_chain(num_outputs: int) -> keras.Model:
    """Two layers with random weights and biases."""
    stack = layers.Dense(3, "tanh", name="a"), layers.Dense(num_outputs, "tanh", name="b")
    model, rng = sequence(*stack, shape=(6,)), np.random.default_rng(num_outputs)
    model.set_weights([rng.normal(size=one.shape) for one in model.get_weights()])
    return model


def in_half(layer: layers.Layer, x: Any) -> Any:
    """Really runs a layer in half precision."""
    return np.asarray(layer(tf.constant(x)), np.float64)


def in_float32(layer: layers.Layer, x: Any) -> Any:
    twin = layers.Dense(layer.units, layer.activation, dtype="float32")
    twin.build(x.shape)
    twin.set_weights(layer.get_weights())
    return np.asarray(twin(tf.constant(x)))


def exact_squares(model: keras.Model) -> dict[str, Any]:
    """The squared norm of J d for each sample: d by running, J in float64."""
    a, b = model.layers
    hidden = in_float32(a, X)
    outputs = in_float32(b, hidden).astype(np.float64)
    kernel = b.get_weights()[0].astype(np.float64)
    jacobian = kernel[None] * (1 - outputs**2)[:, None, :]  # of the outputs by the hidden
    errors = {
        "a": np.einsum("si,sio->so", in_half(a, X) - hidden, jacobian),
        "b": in_half(b, hidden) - outputs,
    }
    return {path: (one**2).sum(axis=1) for path, one in errors.items()}


@pytest.mark.parametrize("path", ["a", "b"])
@pytest.mark.parametrize("num_outputs", [1, 2, 3, 4])
def test_four_passes_tell_the_error_of_up_to_four_outputs_exactly(num_outputs, path):
    model = known_chain(num_outputs)
    found = squares(effects_of(model, X, seed=num_outputs), path)
    np.testing.assert_allclose(found, exact_squares(model)[path], **close)


@pytest.mark.parametrize("path", ["a", "b"])
def test_eight_passes_do_it_with_other_signs_in_the_second_half(path):
    model = known_chain(4)
    effects = effects_of(model, X, probes=8)
    np.testing.assert_allclose(squares(effects, path, 8), exact_squares(model)[path], **close)
    first, second = np.split(effects.errors[path], 2)
    assert not np.allclose(np.abs(first), np.abs(second), rtol=1e-2)


@pytest.mark.parametrize("path", ["a", "b"])
@pytest.mark.parametrize(("num_outputs", "num_probes"), [(2, 1), (5, 4)])
def test_over_all_signs_the_samples_come_to_the_error(num_outputs, num_probes, path):
    # One pass sees (v0 + v1)^2 or (v0 - v1)^2. Of five outputs four passes mix up v0 and
    # v4 only. Either way there are two sums, and their mean is the square of the norm.
    model = known_chain(num_outputs)
    effects = effects_of(model, *([X[:1]] * 20), probes=num_probes)
    seen = (effects.errors[path].reshape(20, num_probes) ** 2).sum(axis=1)
    low, high = seen.min(), seen.max()
    np.testing.assert_allclose(seen, np.where(seen < (low + high) / 2, low, high), **close)
    np.testing.assert_allclose((low + high) / 2, exact_squares(model)[path][0], **close)


def test_a_score_is_the_error_over_all_samples_and_batches():
    model = known_chain(4)
    expected = math.sqrt(exact_squares(model)["a"].sum())
    assert effects_of(model, X).score("a") == pytest.approx(expected, rel=1e-4)
    assert effects_of(model, X[:3], X[3:]).score("a") == pytest.approx(expected, rel=1e-4)


def test_one_seed_gives_one_result_and_batches_have_signs_of_their_own():
    model = known_chain(2)
    once, again = (effects_of(model, X, X, probes=1, seed=7).errors["a"] for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert not np.allclose(np.abs(once[:5]), np.abs(once[5:]), rtol=1e-2)


# --- rounded by hand ---


def test_the_error_of_a_unit_is_what_its_weights_and_inputs_lose():
    # 1 + d is 1 in half, and the other layer makes three of it.
    effects = effects_of(sequence(scaled(1 + DELTA, "a"), scaled(3, "b")), column(1))
    assert (effects.score("a"), effects.score("b")) == (3 * DELTA, 3 * DELTA)


@pytest.mark.parametrize(("pins", "expected"), [((), 3), (("a",), 3), (("b",), 3), (("a", "b"), 0)])
def test_what_two_units_round_alike_counts_once(pins, expected):
    effects = effects_of(sequence(scaled(1 + DELTA, "a"), scaled(3, "b")), column(1))
    assert effects.predict(pins) == expected * DELTA


def test_what_the_data_lose_is_the_first_unit_s_own_error():
    effects = effects_of(sequence(scaled(3, "a"), scaled(2, "b")), column(1 + DELTA))
    assert (effects.score("a"), list(effects.roundings)) == (6 * DELTA, [("b", "a")])


def test_each_output_counts_what_it_is_given():
    x = keras.Input((1,))
    a = scaled(1 + DELTA, "a")(x)
    model = keras.Model(x, {"one": scaled(1, "b")(a), "two": scaled(1, "c")(a)})
    # Both get the error d, so that the sums over signs are (3 + 4)^2 and (3 - 4)^2.
    weights = {"one": 3.0, "two": 4.0}
    effects = effects_of(model, *([column(1)] * 20), weights=weights, probes=1)
    assert set(abs(effects.errors["a"])) == {7 * DELTA, 1 * DELTA}


def test_what_no_output_depends_on_has_no_error():
    class Stopped(layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.stop_gradient(x)

    effects = effects_of(sequence(scaled(1 + DELTA, "a"), Stopped(name="b")), column(1))
    assert ("a" in effects.errors, effects.score("b")) == (False, DELTA)


SELECTING = {
    "nothing": lambda x: x,
    "reshape": lambda x: keras.ops.reshape(x, (-1, 2)),
    "transpose": lambda x: keras.ops.transpose(x, (0, 3, 1, 2)),
    "squeeze": lambda x: keras.ops.squeeze(x, 1),
    "expand": lambda x: keras.ops.expand_dims(x, 1),
    "relu": keras.ops.relu,
    "pool": lambda x: keras.ops.max_pool(x, 1),
    "slice": lambda x: keras.ops.stop_gradient(x)[..., :1],
    "two": lambda x: keras.ops.relu(keras.ops.reshape(x, (-1, 2))),
}
COMPUTING = {
    "product": lambda x: x * 2,
    "exp": keras.ops.exp,
    "sum": lambda x: keras.ops.sum(x, axis=1),
    "relu_of_product": lambda x: keras.ops.relu(x * 2),
}


def test_only_what_selects_numbers_keeps_who_rounded_them():
    x = keras.Input((1, 1, 2))
    given = scaled(1, "a")(x)
    operations = {**SELECTING, **COMPUTING}
    outputs = {
        f"after_{name}": scaled(3, f"after_{name}")(change(given))
        for name, change in operations.items()
    }
    model = keras.Model(x, outputs)
    weights = dict.fromkeys(outputs, 1.0)
    effects = effects_of(model, np.ones((2, 1, 1, 2), np.float32), weights=weights)
    assert effects.givers == {f"after_{name}": ["a"] for name in SELECTING}


def test_layers_that_only_select_give_what_they_took():
    model = sequence(scaled(1 + DELTA, "a"), layers.Flatten(name="f"), scaled(3, "b"))
    effects = effects_of(model, column(1))
    assert list(effects.roundings) == [("f", "a"), ("b", "f")]
    assert effects.predict(()) == 3 * DELTA


def test_both_givers_of_a_unit_are_known():
    x = keras.Input((1,))
    added = layers.Add(name="c")([scaled(1 + DELTA, "a")(x), scaled(1 - DELTA / 2, "b")(x)])
    effects = effects_of(keras.Model(x, added), column(1))
    # 1 - d/2 is a float16 between 1/2 and 1 no more than 1 + d is: both become 1.
    found = {key: abs(one).sum() / 2 for key, one in effects.roundings.items()}
    assert found == {("c", "a"): DELTA, ("c", "b"): DELTA / 2}
    assert effects.predict(()) == pytest.approx(math.hypot(DELTA, DELTA / 2))


def test_a_tensor_that_is_taken_twice_is_rounded_once():
    x = keras.Input((1,))
    a = scaled(1 + DELTA, "a")(x)
    effects = effects_of(keras.Model(x, layers.Multiply(name="b")([a, a])), column(1))
    assert [effects.score("a"), effects.score("b")] == pytest.approx([2 * DELTA] * 2, **near)
    assert effects.predict(()) == pytest.approx(2 * DELTA, **near)


def test_a_layer_that_does_not_cast_takes_what_the_one_before_returns_in_half():
    class Wide(layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.cast(keras.ops.cast(x, "float32") * 3, self.compute_dtype)

    model = sequence(scaled(1 + DELTA, "a"), Wide(name="b", autocast=False))
    assert set(effects_of(model, column(1)).roundings) == {("b", "a")}


class Block(layers.Layer):
    """Two layers, and a product of its own, each of which loses what 1 + d has over 1."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.a, self.b = scaled(1 + DELTA, "a"), scaled(3, "b")

    def call(self, x: Any) -> Any:
        return self.b(self.a(x)) * (1 + DELTA)


@pytest.mark.parametrize(
    ("pins", "square"),
    [
        # (1 + d) 3 (1 + d) is 3 + 6 d. Of that square, 3^2 are a's, and none b's, which
        # loses what a has lost before.
        ((), 6**2),
        (("block/a",), 6**2 - 3**2 + 3**2),
        (("block/b",), 6**2),
        (("block/a", "block/b"), 6**2 - 3**2),
        (("block",), 0),
    ],
)
def test_a_composite_adds_what_its_own_code_loses(pins, square):
    effects = effects_of(sequence(Block(name="block")), column(1))
    assert effects.predict(pins) == pytest.approx(math.sqrt(square) * DELTA, **near)


def test_a_composite_gives_its_parts_what_it_takes():
    model = sequence(scaled(1 + DELTA, "z"), Block(name="block"), scaled(2, "c"))
    givers = {"block": ["z"], "block/a": ["block"], "block/b": ["block/a"], "c": ["block"]}
    assert effects_of(model, column(1)).givers == givers


def test_a_composite_s_score_is_that_of_all_in_it():
    # (1 + d) 3 (1 + d) = 3 + 6 d, and 3 in half.
    effects = effects_of(sequence(Block(name="block")), column(1))
    assert effects.score("block") == pytest.approx(6 * DELTA, **near)


def test_a_layer_that_is_called_twice_has_the_sum_of_both_errors():
    shared = scaled(1 + DELTA, "a")
    effects = effects_of(sequence(shared, scaled(4, "b"), shared), column(1))
    # The first call loses d, or 4 d at the output; the second one 4 d of its factor, and
    # 4 d of what it takes, which b has lost already if it is in half.
    assert effects.score("a") == pytest.approx(12 * DELTA, **near)
    assert effects.predict(()) == pytest.approx(8 * DELTA, **near)


# --- what is not finite ---


def test_what_only_half_makes_infinite_is_told_and_has_no_samples():
    effects = effects_of(sequence(scaled(1e5, "a"), scaled(1e-5, "b")), column(0.5))
    # The second layer's factor is no normal float16, but what it takes overflows first.
    assert set(effects.nonfinite) == {"a"} and not effects.errors["a"].any()


def test_nan_of_one_sample_in_one_batch_is_enough():
    model = sequence(scaled(2, "a"))
    found = effects_of(model, column(1, 2), column(1, 40000)).nonfinite
    assert set(found) == {"a"}


class Log(layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.log(x)


def test_infinities_that_float32_makes_too_are_no_error():
    effects = effects_of(sequence(Log(name="a")), column(0, 1))
    assert (set(effects.nonfinite), effects.score("a")) == (set(), 0)


class Root(layers.Layer):
    def call(self, x: Any) -> Any:
        return keras.ops.sqrt(x)


def test_an_error_is_finite_where_the_slope_is_not():
    # The root of 0 is fine, its slope is infinite: of the other sample d / 2 is left.
    effects = effects_of(sequence(scaled(1 + DELTA, "a"), Root(name="b")), column(0, 1))
    assert effects.score("a") == pytest.approx(DELTA / 2, **near)


def test_a_unit_whose_shadow_raises_is_not_sampled():
    class Mixed(layers.Layer):
        def call(self, x: Any) -> Any:
            return tf.add(x, tf.ones((1,)))

        def compute_output_shape(self, shape: Any) -> Any:
            return shape

    effects = effects_of(sequence(scaled(2, "a"), Mixed(name="b")), column(1))
    assert (set(effects.unsampled), set(effects.nonfinite)) == ({"b"}, set())


# --- whose sample it is ---


def test_errors_of_a_sequence_belong_to_its_sample():
    model = sequence(
        scaled(1 + DELTA, "a"), layers.Flatten(name="f", dtype="float32"), shape=(2, 1)
    )
    x = np.array([[[1], [2]], [[4], [8]]], np.float32)
    found = squares(effects_of(model, x), "a")
    np.testing.assert_array_equal(found, [5 * DELTA**2, 80 * DELTA**2])


def test_rows_of_one_sample_are_put_together():
    x = keras.Input((2, 1))
    rows = scaled(1 + DELTA, "a")(keras.ops.reshape(x, (-1, 1)))
    model = keras.Model(x, keras.ops.reshape(rows, (-1, 2)))
    found = squares(effects_of(model, np.array([[[1], [2]], [[4], [8]]], np.float32)), "a")
    np.testing.assert_array_equal(found, [5 * DELTA**2, 80 * DELTA**2])


def test_what_no_sample_owns_counts_for_all_together():
    class Mean(layers.Layer):
        def call(self, x: Any) -> Any:
            return keras.ops.mean(x) * (1 + DELTA)

    class Times(layers.Layer):
        def call(self, x: Any, mean: Any) -> Any:
            return x * mean

    x = keras.Input((1,))
    model = keras.Model(x, Times(name="b", dtype="float32")(x, Mean(name="a")(x)))
    # The mean is 2, its error 2 d: outputs are off by 2 d and 6 d, together or apart.
    effects = effects_of(model, *([column(1, 3)] * 20), probes=1)
    seen = np.sqrt((effects.errors["a"].reshape(20, 2) ** 2).sum(axis=1)) / DELTA
    assert set(np.round(seen, 2)) == {4, 8}


# --- the loss ---


def half_of_square(y: Any, prediction: Any) -> Any:
    return keras.ops.square(prediction - y) / 2


def test_errors_of_the_loss_add_up_over_samples():
    # The slope is the output over 2 samples; outputs 1 and 2 are off by d and 2 d.
    data = (column(1, 2), column(0, 0))
    effects = effects_of(sequence(scaled(1 + DELTA, "a")), data, loss=half_of_square)
    assert effects.score("a") == pytest.approx((1 + 4) / 2 * DELTA, **near)


def test_errors_of_the_loss_cancel_down_to_what_random_signs_leave():
    data = (column(1, 1), column(0, 2))  # slopes of 1 and -1, halved
    effects = effects_of(sequence(scaled(1 + DELTA, "a")), data, loss=half_of_square)
    assert effects.score("a") == pytest.approx(math.hypot(0.5, 0.5) * DELTA, **near)


def test_a_loss_takes_one_pass_whatever_the_probes():
    data = (column(1, 2), column(0, 0))
    effects = effects_of(sequence(scaled(1 + DELTA, "a")), data, loss=half_of_square, probes=8)
    assert effects.errors["a"].shape == (2,)


def test_what_a_shadow_adds_to_the_loss_does_not_count():
    class Adds(layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(keras.ops.sum(keras.ops.cast(x, "float32")))
            return x

    model = sequence(scaled(1 + DELTA, "a"), Adds(name="b"))
    data = (column(1, 1), column(1 + DELTA, 1 + DELTA))  # nothing from the targets
    effects = effects_of(model, data, loss=half_of_square)
    assert effects.score("a") == pytest.approx(2 * DELTA, **near)


# --- nothing else changes ---


def masked() -> tuple[keras.Model, Any]:
    stack = layers.Embedding(9, 4, mask_zero=True), layers.LSTM(3), layers.Dense(2)
    model = keras.Sequential([keras.Input((6,), dtype="int32"), *stack])
    return model, np.array([[1, 2, 3, 0, 0, 0], [4, 5, 0, 0, 0, 0]], np.int32)


def convolutional() -> tuple[keras.Model, Any]:
    stack = layers.Conv2D(3, 3), layers.BatchNormalization(), layers.Dropout(0.5)
    last = layers.GlobalAveragePooling2D(), layers.Dense(2)
    model = sequence(*stack, *last, shape=(8, 8, 2))
    return model, np.random.default_rng(0).normal(size=(2, 8, 8, 2)).astype(np.float32)


def attentive() -> tuple[keras.Model, Any]:
    x = keras.Input((5, 4))
    model = keras.Model(x, layers.MultiHeadAttention(2, 2)(x, x, use_causal_mask=True))
    return model, np.random.default_rng(0).normal(size=(2, 5, 4)).astype(np.float32)


@pytest.mark.parametrize("build", [masked, convolutional, attentive])
def test_beside_its_shadows_the_model_computes_what_it_does_without(build):
    model, x = build()
    runs, batch = runs_of(model, x), Batch(tf.constant(x))
    before = [np.array(one) for one in model.variables]
    units = {unit.path for unit in find_units(runs.with_pins((), OUTPUTS, None).step, runs.paths)}
    shadows = Shadows(units, runs.paths, "float16", {"0": 1.0})
    observers = Observers(
        on_inputs=shadows.on_inputs, on_outputs=shadows.on_outputs, on_end=shadows.on_end
    )
    step = trace_step(
        model, (x,), in_float32=True, observers=observers, until=OUTPUTS, training=False
    )
    tensors = [*(one.tensor for one in shadows.projections)]
    (key,) = step.model_outputs.values()
    found, *_ = StepRunner(step).function([step.reader.symbolic[key], *tensors])(batch, 1.0)
    (expected,) = runs.float32(OUTPUTS, None).on(batch).outputs.values()
    np.testing.assert_array_equal(found, expected)
    assert {one.unit for one in shadows.projections} == units
    for one, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(one, value)


def test_each_pass_is_counted():
    model = sequence(scaled(2, "a"))
    runs = runs_of(model, column(1))
    units = layers_of(model)
    batches = [Batch(tf.constant(column(1)))] * 2
    Probing(runs, units, "float16", "output", {"0": 1.0}).effects(batches, 3, 0, {})
    assert runs.num_passes == 6
