"""Gradients of float32 models next to those of half ones, against Keras's own tapes."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.inspection.numerics.measured import sequential
from tf_amp_kit.errors import InputsError, ModelError, OptimizerError, PrecisionError
from tf_amp_kit.inspection.numerics.gradients import compare_gradients
from tf_amp_kit.inspection.numerics.pairs import GradientComparison, GradientPair

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 3)).astype(np.float32)
Y = RNG.standard_normal((8, 1)).astype(np.float32)


def compare(model: Any, *data: Any, **options: Any) -> GradientComparison:
    defaults = {"loss": "mse", "precision": "float16", "verbose": 0}
    return compare_gradients(model, *data, **{**defaults, **options})


def by_path(comparison: GradientComparison) -> dict[str, GradientPair]:
    return {pair.path: pair for pair in comparison.pairs}


def mlp(policy: str, *, weights: Any = None) -> keras.Model:
    layers = (
        keras.layers.Dense(5, activation="tanh", name="hidden", dtype=policy),
        keras.layers.Dense(1, name="out", dtype="float32"),
    )
    model = sequential((3,), *layers)
    if weights is not None:
        model.set_weights(weights)
    return model


def taped(model: keras.Model, scale: float = 1.0) -> list[Any]:
    """Gradients as a training loop in eager mode takes them, unscaled in float32."""
    with tf.GradientTape() as tape:
        loss = scale * tf.reduce_mean(tf.square(model(X, training=True) - Y))
    gradients = tape.gradient(loss, model.trainable_weights)
    return [tf.cast(one, tf.float32).numpy() / np.float32(scale) for one in gradients]


@pytest.fixture(params=["float16", "bfloat16"])
def half(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_errors_are_those_of_keras_s_own_gradients(half: str) -> None:
    model = mlp(f"mixed_{half}")
    wide = taped(mlp("float32", weights=model.get_weights()))
    narrow = taped(model, 64.0)
    wanted = [
        np.linalg.norm(np.float64(a) - b) / np.linalg.norm(np.float64(a))
        for a, b in zip(wide, narrow, strict=True)
    ]
    found = compare(model, X, Y, precision=half, loss_scale=64.0)
    errors = [pair.relative_error for pair in found.pairs]
    # Gradients in float32 differ by its rounding from one kernel to another.
    assert errors == pytest.approx(wanted, rel=0.02, abs=1e-6)


def test_the_float32_side_is_keras_s_own_gradient(half: str) -> None:
    model = mlp(f"mixed_{half}")
    wanted = taped(mlp("float32", weights=model.get_weights()))
    found = [pair.float32.rms for pair in compare(model, X, Y, precision=half).pairs]
    rms = [np.sqrt(np.mean(np.square(one, dtype=np.float64))) for one in wanted]
    assert found == pytest.approx(rms, rel=1e-5)


def test_the_half_side_is_keras_s_own_gradient_unscaled(half: str) -> None:
    model = mlp(f"mixed_{half}")
    wanted = taped(model, 1024.0)
    found = [one.half.rms for one in compare(model, X, Y, precision=half, loss_scale=1024).pairs]
    rms = [np.sqrt(np.mean(np.square(one, dtype=np.float64))) for one in wanted]
    assert found == pytest.approx(rms, rel=1e-4)


def test_weights_come_in_the_order_of_the_model() -> None:
    paths = [pair.path for pair in compare(mlp("float32"), X, Y).pairs]
    assert paths == ["hidden/kernel", "hidden/bias", "out/kernel", "out/bias"]


def test_the_whole_is_all_gradients_as_one_vector() -> None:
    model = mlp("mixed_float16")
    wide = np.concatenate(
        [one.ravel() for one in taped(mlp("float32", weights=model.get_weights()))]
    )
    narrow = np.concatenate([one.ravel() for one in taped(model)])
    whole = compare(model, X, Y).whole
    cosine = np.dot(wide, narrow) / np.linalg.norm(wide) / np.linalg.norm(narrow)
    assert (whole.num_elements, whole.cosine) == (26, pytest.approx(cosine, abs=1e-6))


def tiny(_: Any, y_pred: Any) -> Any:
    return 2.0**-26 * tf.reduce_sum(tf.cast(y_pred, tf.float32))


def single(weight: float = 1.0) -> keras.Model:
    model = sequential((1,), keras.layers.Dense(1, name="out", dtype="mixed_float16"))
    model.set_weights([np.array([[weight]]), np.zeros(1)])
    return model


def test_gradients_below_the_format_vanish_without_a_scale() -> None:
    x, y = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    found = [
        compare(single(), x, y, loss=tiny, loss_scale=scale).whole.num_vanished
        for scale in (1.0, 2.0**15)
    ]
    assert found == [2, 0]


def test_scaled_gradients_are_divided_by_the_scale_again() -> None:
    x, y = np.full((1, 1), 3, np.float32), np.zeros((1, 1), np.float32)
    pair = by_path(compare(single(), x, y, loss=tiny, loss_scale=2.0**15))["out/kernel"]
    assert (pair.half.maximum, pair.relative_error) == (3 * 2.0**-26, 0.0)


def summed(_: Any, y_pred: Any) -> Any:
    return tf.reduce_sum(tf.cast(y_pred, tf.float32))


def test_gradients_beyond_the_format_are_told_as_not_finite() -> None:
    # 4 * 2^15 is 131072; the bias's own gradient, 2^15, fits.
    x, y = np.full((1, 1), 4, np.float32), np.zeros((1, 1), np.float32)
    pairs = by_path(compare(single(), x, y, loss=summed, loss_scale=2.0**15))
    kernel, bias = pairs["out/kernel"], pairs["out/bias"]
    found = kernel.num_nonfinite, kernel.relative_error, math.isnan(kernel.cosine)
    assert (found, bias.num_nonfinite, bias.relative_error) == ((1, math.inf, True), 0, 0.0)


def test_the_scale_is_that_of_the_optimizer_where_none_is_given() -> None:
    model = single()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=256.0)
    model.compile(optimizer, "mse")
    x = np.ones((1, 1), np.float32)
    assert compare(model, x, 0 * x, loss=None).loss_scale == 256.0


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_dropout_draws_the_same_in_both(policy: str) -> None:
    layers = (
        keras.layers.Dense(64, name="hidden", dtype=policy),
        keras.layers.Dropout(0.5, dtype=policy),
        keras.layers.Dense(1, name="out", dtype="float32"),
    )
    found = compare(sequential((3,), *layers), X, Y)
    assert found.whole.cosine > 0.999


def test_noise_in_a_wrapper_is_the_same_in_both() -> None:
    noise = keras.layers.GaussianNoise(0.9, dtype="mixed_float16")
    layers = (
        keras.layers.Dense(64, name="hidden", dtype="mixed_float16"),
        keras.layers.Reshape((8, 8), dtype="mixed_float16"),
        keras.layers.TimeDistributed(noise, dtype="mixed_float16"),
        keras.layers.Flatten(dtype="mixed_float16"),
        keras.layers.Dense(1, name="out", dtype="float32"),
    )
    found = compare(sequential((3,), *layers), X, Y)
    assert found.whole.cosine > 0.999


class Noisy(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return x * tf.cast(tf.random.uniform(tf.shape(x), dtype=x.dtype) > 0.5, x.dtype)


def test_layers_of_the_user_that_draw_are_noted() -> None:
    layers = (
        keras.layers.Dense(8, dtype="mixed_float16"),
        Noisy(name="noisy", dtype="mixed_float16"),
    )
    notes = compare(sequential((3,), *layers), X, np.zeros((8, 8), np.float32)).notes
    assert notes == (
        "'noisy' draw random numbers that differ between the precisions, and the gradients "
        "with them.",
    )


class Idle(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.spare = self.add_weight(shape=(3,), initializer="ones", name="spare")

    def call(self, x: Any) -> Any:
        return 2.0 * x


def test_weights_without_gradients_are_noted_and_left_out() -> None:
    model = sequential((3,), keras.layers.Dense(1, name="out"), Idle(name="idle"))
    found = compare(model, X, Y)
    assert (list(by_path(found)), found.notes) == (
        ["out/kernel", "out/bias"],
        ("Nothing depends on 'idle/spare': no gradient.",),
    )


def state_of(model: keras.Model) -> Any:
    policies = [layer.dtype_policy.name for layer in model.layers]
    return policies, [np.array(one) for one in model.variables]


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_the_model_is_as_before(policy: str) -> None:
    layers = (
        keras.layers.Dense(4, dtype=policy),
        keras.layers.BatchNormalization(dtype=policy),
        keras.layers.Dropout(0.5, dtype=policy),
        keras.layers.Dense(1, dtype=policy),
    )
    model = sequential((3,), *layers)
    before = state_of(model)
    compare(model, X, Y)
    np.testing.assert_equal(state_of(model), before)


def test_a_float32_model_is_compared_with_its_copy_in_the_mixed_policy() -> None:
    model = mlp("float32")
    half_model = mlp("mixed_bfloat16", weights=model.get_weights())
    found = [compare(one, X, Y, precision="bf16") for one in (model, half_model)]
    # The float32 output of the second keeps it apart: only the hidden layer is the same.
    kinds = [by_path(one)["hidden/kernel"].relative_error for one in found]
    assert all(0 < error < 0.05 for error in kinds)


def test_the_first_batch_is_taken() -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(3)
    found, first = compare(mlp_seeded(), data), compare(mlp_seeded(), X[:3], Y[:3])
    assert (found.num_samples, found.whole) == (3, first.whole)


def mlp_seeded() -> keras.Model:
    keras.utils.set_random_seed(1)
    return mlp("mixed_float16")


def test_rows_of_one_index_are_added_up() -> None:
    # 1 and -1.0005: in float16 the second is -1.0009765625, and the sum -2^-10.
    layers = (
        keras.layers.Embedding(3, 1, name="table", dtype="mixed_float16"),
        keras.layers.Flatten(dtype="mixed_float16"),
        keras.layers.Dense(1, name="out", use_bias=False, dtype="mixed_float16"),
    )
    model = sequential((2,), *layers, dtype="int32")
    model.layers[-1].set_weights([np.array([[1.0], [-1.0005]])])
    pair = by_path(compare(model, np.array([[1, 1]]), Y[:1], loss=summed))["table/embeddings"]
    wanted = float(np.float32(1.0) - np.float32(1.0005))
    found = pair.num_elements, pair.float32.minimum, pair.half.minimum
    assert found == (3, pytest.approx(wanted), -(2.0**-10))


class Unbuilt(keras.Model):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.a, self.b = keras.layers.Dense(4), keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.b(self.a(x))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_model_that_is_not_built_is_compared_as_a_built_one(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    model = Unbuilt()
    first, second = (compare(model, X, Y, precision=None) for _ in range(2))
    assert (first, first.whole.relative_error < 0.1) == (second, True)


def test_layers_that_do_more_than_draw_are_in_half() -> None:
    # Scores of about 1e6 overflow float16.
    inputs = keras.Input((6, 8))
    attention = keras.layers.Attention(dropout=0.1, dtype="mixed_float16")
    hidden = keras.layers.Dense(8, kernel_initializer="ones", dtype="mixed_float16")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(attention([hidden, hidden])))
    x = np.full((2, 6, 8), 60.0, np.float32)
    assert compare(model, x, np.ones((2, 6, 1), np.float32)).whole.num_nonfinite > 0


def test_a_model_that_does_not_train_has_nothing_to_compare() -> None:
    model = mlp("mixed_float16")
    model.trainable = False
    assert compare(model, X, Y).pairs == ()


def test_the_copy_of_a_float32_model_is_compared_at_the_scale_that_training_starts_from() -> None:
    model = mlp("float32")
    model.compile("sgd", "mse")
    assert compare(model, X, Y, loss=None).loss_scale == 2.0**15


def test_an_optimizer_that_does_not_scale_means_scale_1() -> None:
    model = mlp("mixed_bfloat16")
    model.compile("sgd", "mse")
    assert compare(model, X, Y, loss=None, precision="bf16").loss_scale == 1.0


def test_a_scale_of_nobodys_asking_comes_down_until_the_gradients_are_finite() -> None:
    # The kernel's gradient is 1000 times the scale: 65 520 / 1000 is above 64.
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile("sgd", lambda y, p: 1000.0 * p)
    report = compare_gradients(model, np.ones((1, 1)), np.ones((1, 1)), precision="fp16", verbose=0)
    assert (report.loss_scale, report.whole.num_nonfinite) == (64.0, 0)
    assert report.notes == (
        "At loss scale 32768 there was NaN or Inf: the scale was halved down to 64, as dynamic "
        "loss scaling does by skipping steps.",
    )


def test_a_model_with_no_layer_in_half_is_noted() -> None:
    layers = keras.layers.Dense(4, dtype="float64"), keras.layers.Dense(1, dtype="float64")
    notes = compare(sequential((3,), *layers), X, Y).notes
    assert notes == ("No layer with weights computes in float16: little is compared.",)


def test_a_second_comparison_gives_the_same_numbers() -> None:
    model = mlp("mixed_float16")
    assert compare(model, X, Y) == compare(model, X, Y)


def test_the_comparison_is_printed_unless_asked_not_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = compare(mlp("mixed_float16"), X, Y, verbose=1)
    assert capsys.readouterr().out == f"{found}\n"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"precision": "float32"}, PrecisionError),
        ({"precision": "fp17"}, PrecisionError),
        ({"loss_scale": 0.0}, OptimizerError),
        ({"loss": None}, ModelError),
    ],
)
def test_what_cannot_be_compared_is_refused(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        compare(mlp("float32"), X, Y, **options)


def test_a_dataset_without_batches_is_refused() -> None:
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(2).take(0)
    with pytest.raises(InputsError, match=r"The data hold no batch\."):
        compare(mlp("float32"), data)
