"""The study's nets are small, take real data, and train in each precision."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

import tf_amp_kit as amp
from tests.benchmarks.study_nets import (
    ALPHABET,
    LENGTH,
    STRIDE,
    STUDIES,
    VOCABULARY,
    digits,
    pixels,
    text,
)

FUNCTIONS = (digits, pixels, text)


@functools.cache
def once(function: Callable[[], Any]) -> Any:
    """Make data once for all tests that only look at them."""
    return function()


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_data_are_the_same_twice(function: Callable[[], Any]) -> None:
    for first, second in zip(once(function), function(), strict=True):
        np.testing.assert_array_equal(first[0], second[0])
        np.testing.assert_array_equal(first[1], second[1])


@pytest.mark.parametrize("name", STUDIES)
def test_data_fit_the_model(name: str) -> None:
    model = STUDIES[name].build()

    for x, y in once(STUDIES[name].data):
        assert len(x) == len(y)
        assert x.shape[1:] == model.input_shape[1:]
        assert np.isfinite(x).all()
        assert x.dtype == model.inputs[0].dtype


@pytest.mark.parametrize("name", STUDIES)
def test_validation_is_long_enough_to_see_half_a_percent(name: str) -> None:
    (x, _), (_, y) = once(STUDIES[name].data)

    assert len(x) >= 9000
    assert y.size >= 4000


def test_each_digit_keeps_its_ink_when_it_is_moved() -> None:
    (x, y), (_, held_out) = once(digits)

    assert len(x) == 8 * 1198
    assert len(held_out) == 8 * 599
    assert x.shape[1:] == (12, 12, 1)
    assert sorted(set(y)) == list(range(10))
    # Eight places of the same digit: each sum of ink is there at least eight times.
    assert np.unique(x.sum((1, 2, 3)).round(3), return_counts=True)[1].min() >= 8


def test_a_pixel_is_told_from_the_twelve_before_it() -> None:
    (x, y), (held_out, _) = once(pixels)

    assert x.shape[1:] == (36,)
    assert y.shape[1:] == (3,)
    assert len(held_out) == 16384
    assert -0.5 <= x.min() < -0.4 < 0.4 < x.max() <= 0.5
    # The last column group is the pixel to the left: nearest in place, and in colour.
    left, far = x[:, -3:], x[:, :3]
    assert np.abs(left - y).mean() < np.abs(far - y).mean()


def test_the_next_character_is_the_window_moved_by_one() -> None:
    (x, y), (held_out, _) = once(text)

    assert x.shape[1:] == y.shape[1:] == (LENGTH,)
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
    assert 0 <= x.min() <= x.max() < VOCABULARY
    assert any("statement" in _decoded(window) for window in held_out)


def test_little_of_the_held_out_text_is_trained_on() -> None:
    (x, _), (held_out, _) = once(text)
    # 32 characters, wherever they stand. Grammar and set phrases come again in any manual,
    # more of them in that of Python 3.13.
    half = LENGTH // 2
    seen = {row[start : start + half].tobytes() for row in x for start in range(STRIDE)}

    shared = sum(row[:half].tobytes() in seen for row in held_out)

    assert shared <= len(held_out) // 5


@pytest.mark.filterwarnings("ignore::tf_amp_kit.errors.LossScaleWarning")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("name", STUDIES)
def test_a_step_trains_in_each_precision(name: str, precision: str) -> None:
    study = STUDIES[name]
    x, y = (values[:4] for values in once(study.data)[0])
    with amp.amp_scope(precision):
        model = study.build()
    model.run_eagerly = True  # a graph would take longer than the step
    before = [np.array(weight) for weight in model.trainable_weights]

    logs = model.train_on_batch(x, y, return_dict=True)

    assert np.isfinite(logs["loss"])
    assert study.metric in logs
    if precision != "fp16":  # which may skip its first steps to find its scale
        assert any((was != np.array(now)).any() for was, now in _pairs(before, model))


@pytest.mark.parametrize("name", STUDIES)
def test_pinning_keeps_the_head_in_float32(name: str) -> None:
    with amp.amp_scope("fp16"):
        model = STUDIES[name].build()
        amp.pin_float32(model)

    assert model.layers[1].compute_dtype == "float16"
    assert model.layers[-1].compute_dtype == "float32"


def test_float16_is_trained_with_a_loss_scale() -> None:
    with amp.amp_scope("fp16"):
        optimizers = [study.build().optimizer for study in STUDIES.values()]

    assert all(isinstance(one, keras.optimizers.LossScaleOptimizer) for one in optimizers)


def _decoded(window: np.ndarray) -> str:
    return "".join(ALPHABET[index] if index < len(ALPHABET) else "?" for index in window)


def _pairs(before: list[np.ndarray], model: keras.Model) -> Iterator[Any]:
    return zip(before, model.trainable_weights, strict=True)
