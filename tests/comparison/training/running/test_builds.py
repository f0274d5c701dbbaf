"""Building a model in a precision, and what of it is left afterwards."""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tf_amp_kit as amp
from tests.comparison.training.given import SEED, X, Y, candidate, dense, seed_all
from tf_amp_kit.comparison.training.candidates import Candidate
from tf_amp_kit.comparison.training.running.builds import Builder, set_weights
from tf_amp_kit.data import Batch
from tf_amp_kit.errors import ModelError, PinError
from tf_amp_kit.precision.state import AmpState

BATCH = Batch(tf.constant(X[:8]), tf.constant(Y[:8]))


@contextlib.contextmanager
def model_of(
    build_fn: Any, precision: str = "fp32", *, pin: bool = True, seed: int = SEED, **options: Any
) -> Iterator[keras.Model]:
    builder = Builder(build_fn, pin)
    with builder.model(candidate(precision), seed, options.pop("batch", BATCH), **options) as one:
        yield one


def dtypes(model: keras.Model) -> list[str]:
    return [layer.compute_dtype for layer in model.layers]


# ----------------------------------------------------------------------------- precision


@pytest.mark.parametrize(
    ("precision", "pin", "expected"),
    [
        ("fp32", True, ["float32", "float32"]),
        ("bf16", True, ["bfloat16", "float32"]),
        ("fp16", True, ["float16", "float32"]),
        ("fp16:O2", True, ["float16", "float32"]),
        ("fp16", False, ["float16", "float16"]),
    ],
)
def test_a_model_computes_in_its_precision_with_the_level_s_pins(
    precision: str, pin: bool, expected: list[str]
) -> None:
    with model_of(dense, precision, pin=pin) as model:
        assert dtypes(model) == expected


def test_pure_half_has_half_weights_and_no_pins() -> None:
    with model_of(dense, "bf16:O3") as model:
        assert (dtypes(model), {one.dtype for one in model.weights}) == (
            ["bfloat16", "bfloat16"],
            {"bfloat16"},
        )


def with_pins() -> Candidate:
    """float16 with pins of another build: the body, and not the head."""
    with amp.amp_scope("fp16"):
        pins = amp.pin_float32(dense(), "body")
    return Candidate("float16 pins", AmpState("float16", "O1", pins=pins))


def test_a_state_with_pins_is_pinned_even_without_pin() -> None:
    with Builder(dense, False).model(with_pins(), SEED, BATCH) as model:
        assert dtypes(model) == ["float32", "float16"]


def test_pins_of_another_model_are_refused() -> None:
    def other() -> keras.Model:
        model = keras.Sequential([keras.Input((6,)), layers.Dense(2, name="elsewhere")])
        model.compile("sgd", "mse")
        return model

    with pytest.raises(PinError), Builder(other, True).model(with_pins(), SEED, BATCH):
        pass


def test_in_the_block_the_precision_is_the_current_one() -> None:
    with model_of(dense, "fp16:O2"):
        assert (amp.current_amp().precision, amp.current_amp().level) == ("float16", "O2")


def test_a_builder_that_names_its_dtypes_is_refused_in_half() -> None:
    def build() -> keras.Model:
        stack = [layers.Dense(2, dtype="float32", name="a"), layers.Activation("relu")]
        model = keras.Sequential([keras.Input((6,)), *stack], name="net")
        model.compile("sgd", "mse")
        return model

    message = (
        "No layer with weights computes in float16, although the builder was called under it: "
        "there is nothing to compare. Received: 'net', which computes in float32. Leave dtypes "
        "and policies out of the builder."
    )
    with pytest.raises(ModelError, match=re.escape(message)), model_of(build, "fp16"):
        pass


# ------------------------------------------------------------------------------- weights


def test_the_same_seed_gives_the_same_weights() -> None:
    with model_of(dense) as model:
        first = model.get_weights()
    keras.utils.set_random_seed(99)
    with model_of(dense, "fp16") as model:
        for one, other in zip(first, model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_another_seed_gives_other_weights() -> None:
    with model_of(dense) as model:
        first = model.get_weights()[0]
    with model_of(dense, seed=SEED + 1) as model:
        assert not np.array_equal(first, model.get_weights()[0])


def test_a_run_draws_the_same_in_every_precision() -> None:
    draws = []
    for precision in ("fp32", "bf16"):
        with model_of(dense, precision):
            draws.append((float(keras.random.uniform(())), float(tf.random.uniform(()))))
    assert draws[0] == draws[1]


def test_given_weights_replace_those_of_the_builder() -> None:
    weights = [np.full(one, 0.5, "float32") for one in ((6, 8), (8,), (8, 2), (2,))]
    with model_of(dense, "bf16", weights=weights) as model:
        assert all((one == 0.5).all() for one in model.get_weights())


def test_a_builder_with_random_sizes_is_refused() -> None:
    sizes = itertools.count(8)

    def build() -> keras.Model:
        stack = [layers.Dense(next(sizes), name="body"), layers.Dense(2, name="head")]
        model = keras.Sequential([keras.Input((6,)), *stack], name="net")
        model.compile("sgd", "mse")
        return model

    with model_of(build) as model:
        weights = model.get_weights()
    message = (
        "The builder gives other weights each time. Expected the shapes of the first build, "
        "(6, 8) for weight 1 of 4. Received: (6, 9) for weight 1 of 4. Take sizes from constants"
    )
    with (
        pytest.raises(ModelError, match=re.escape(message)),
        model_of(build, "bf16", weights=weights),
    ):
        pass


def test_a_builder_with_more_layers_the_second_time_is_refused() -> None:
    model = dense()
    message = (
        "Expected the shapes of the first build, nothing for weight 3 of 2. "
        "Received: (8, 2) for weight 3 of 4."
    )
    with pytest.raises(ModelError, match=re.escape(message)):
        set_weights(model, model.get_weights()[:2])


# ------------------------------------------------------------------------ kinds of models


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__(name="mine")
        self.body, self.norm = layers.Dense(8, "relu"), layers.BatchNormalization()
        self.head = layers.Dense(2)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.head(self.norm(self.body(inputs), training=training))


def subclassed() -> keras.Model:
    model = Subclassed()
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_subclassed_model_is_built_by_its_data(precision: str) -> None:
    with model_of(subclassed, precision) as model:
        assert [tuple(one.shape) for one in model.trainable_weights] == [
            (6, 8), (8,), (8,), (8,), (8, 2), (2,),
        ]  # fmt: skip


def test_building_by_data_does_not_train() -> None:
    with model_of(subclassed) as model:
        assert (int(model.optimizer.iterations), model.norm.moving_mean.numpy().tolist()) == (
            0,
            [0.0] * 8,
        )


def test_a_sequential_model_without_an_input_is_built_by_its_data() -> None:
    def build() -> keras.Model:
        model = keras.Sequential([layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    with model_of(build, "bf16") as model:
        assert tuple(model.weights[0].shape) == (6, 2)


# -------------------------------------------------------------------------------- errors


def test_a_builder_that_does_not_compile_is_refused() -> None:
    def build() -> keras.Model:
        return keras.Sequential([keras.Input((6,)), layers.Dense(2)], name="net")

    message = (
        "The model is not compiled. Expected a builder that compiles it. Received: Sequential "
        "named 'net'. Call its compile() in the builder."
    )
    with pytest.raises(ModelError, match=re.escape(message)), model_of(build):
        pass


@pytest.mark.parametrize("returned", [None, layers.Dense(2), "model.keras"])
def test_a_builder_that_returns_no_model_is_refused(returned: Any) -> None:
    message = f"Received: build_fn()={returned!r}"
    with pytest.raises(ModelError, match=re.escape(message)), model_of(lambda: returned):
        pass


# ------------------------------------------------------------------------------- traces


def states() -> tuple[Any, ...]:
    return (
        keras.config.dtype_policy().name,
        keras.config.floatx(),
        amp.current_amp(),
        list(tf.get_logger().filters),
        tf.config.optimizer.get_jit(),
        tf.config.functions_run_eagerly(),
        tf.config.list_logical_devices(),
    )


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16:O2"])
def test_nothing_global_is_left(precision: str, fails: bool) -> None:
    before = states()
    with contextlib.suppress(KeyError), model_of(dense, precision):
        if fails:
            raise KeyError
    assert states() == before


def test_a_precision_that_was_switched_on_is_on_again() -> None:
    amp.enable_amp("bf16")
    with model_of(dense, "fp16"):
        pass
    assert (amp.current_amp().precision, keras.config.dtype_policy().name) == (
        "bfloat16",
        "mixed_bfloat16",
    )


def test_a_builder_that_sets_a_policy_leaves_none() -> None:
    def build() -> keras.Model:
        keras.config.set_dtype_policy("mixed_float16")
        return dense()

    with model_of(build, "fp16"):
        pass
    assert keras.config.dtype_policy().name == "float32"


def test_random_numbers_go_on_as_if_nothing_had_been_built() -> None:
    seed_all(1)
    expected = [float(keras.random.uniform(())), float(tf.random.uniform(())), np.random.random()]
    seed_all(1)
    with model_of(dense, "fp16"):
        pass
    found = [float(keras.random.uniform(())), float(tf.random.uniform(())), np.random.random()]
    assert found == expected


def test_only_advice_about_retracing_is_kept_away(caplog: pytest.LogCaptureFixture) -> None:
    with model_of(dense):
        tf.get_logger().warning("5 out of the last 5 calls triggered tf.function retracing.")
        tf.get_logger().warning("Something else.")
    told = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert told == ["Something else."]
